"""One file = one serving engine: what it loads, what it cannot hold, what it does not check."""
