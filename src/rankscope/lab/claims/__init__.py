"""The papers' claims, each a function from stored runs to a verdict by a rule fixed before."""
