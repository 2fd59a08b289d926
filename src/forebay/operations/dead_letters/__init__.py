"""Dead letters: reading and redriving them."""
