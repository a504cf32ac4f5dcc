"""Requests through an engine that serves an expert-parallel model: discrete events, step by step."""
