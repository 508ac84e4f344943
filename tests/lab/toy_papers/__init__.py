"""A paper that takes no time."""
