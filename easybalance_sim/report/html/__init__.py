"""Pages as HTML: one self-contained file, or a fragment for a notebook."""
