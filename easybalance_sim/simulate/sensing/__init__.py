"""What sensors of a running engine see, and which rule tells a hot spot that stays from one that goes."""
