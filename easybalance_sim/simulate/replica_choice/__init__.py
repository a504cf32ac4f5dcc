"""Which replica takes how many assignments of a step: rules, what each has to know, what that costs and brings."""
