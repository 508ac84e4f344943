"""A paper that was never written."""
