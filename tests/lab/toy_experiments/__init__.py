"""Experiments for tests of the command line."""
