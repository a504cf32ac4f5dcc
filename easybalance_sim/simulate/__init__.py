"""What-ifs on the same parts: plans rolled out, plans over time."""
