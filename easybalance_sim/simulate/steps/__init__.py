"""Recorded steps in memory, and how even rank loads are: what every what-if on single steps starts from and ends in."""
