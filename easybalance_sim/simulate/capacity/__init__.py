"""How many requests per second a described cluster sustains, and what each mechanism of balancing adds to them."""
