"""The committed results: what is due, what was kept of it, and whether it still says the same."""
