"""The parts of a report: one module = one mechanism's question, asked of a prepared run."""
