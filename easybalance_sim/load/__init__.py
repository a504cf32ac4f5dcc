"""Load: counts per window, forecasts, hot spots, what the skew is made of."""
