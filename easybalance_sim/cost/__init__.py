"""What a placement costs: expert time, communication, memory, one objective in seconds."""
