"""Several micro-batches at different layers that contend for ranks, and the order in which ranks serve them."""
