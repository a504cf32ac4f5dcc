"""Requests sent to the node whose experts they use: topics, admission, placements planned with it, and their price."""
