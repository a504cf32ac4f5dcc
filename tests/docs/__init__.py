"""What the documentation says, held against what the program does."""
