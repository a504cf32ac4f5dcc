"""What it costs in quality to choose other experts, beside what it gains, and the file that such settings go to."""
