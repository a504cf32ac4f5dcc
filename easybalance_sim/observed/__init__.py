"""Measured times of ranks beside those that were predicted."""
