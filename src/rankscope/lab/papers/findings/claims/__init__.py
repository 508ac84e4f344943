"""Claims of our own and the rules that decide them."""
