"""What `ebsim offset` does: every mechanism against rank imbalance on one trace, beside what costs no quality."""
