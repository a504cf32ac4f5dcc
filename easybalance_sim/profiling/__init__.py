"""Measured tables into profile rows: reading, rebuilding the loads behind them, bounded fits, held-out error."""
