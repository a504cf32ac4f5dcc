"""What-if over redundant slots, ranks and window length: what each point gains and how much KV cache it costs."""
