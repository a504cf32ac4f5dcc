"""A plan and its baseline where nobody planned for: other mixes, bursts, uniform routing, lost nodes, slow ranks."""
