"""The placement itself: value, file, checks, and what it takes to get there."""
