"""Kinds of charts, one file each: a value that knows its data and draws itself."""
