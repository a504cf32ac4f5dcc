"""What `ebsim rebalance` does: control loops side by side on one trace."""
