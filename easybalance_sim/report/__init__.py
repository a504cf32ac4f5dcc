"""Figures of reports; the only place that draws."""
