"""Parts of pages that answer one question each, made of a report."""
