"""Parts of a planning run: the session, the problem made of it, its candidates, and the evidence for the one chosen."""
