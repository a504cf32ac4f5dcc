"""The gate: criteria and the verdict on a replay report."""
