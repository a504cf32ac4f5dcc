"""Routing traces: schema, streaming reader, writer, checks, importers, synthesis."""
