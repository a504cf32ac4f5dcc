"""Replay: recorded tokens through a plan and an engine's replica choice, to loads, bytes and seconds."""
