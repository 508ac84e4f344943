"""Keeping runs of scale paper as small files, and checking them."""
