"""What we plan for: the cluster, the model's shape, the hardware."""
