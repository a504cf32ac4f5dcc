"""Readers of measured tables, one file per source; each knows which rows of its source must not be fitted."""
