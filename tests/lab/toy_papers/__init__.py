"""Papers for tests of the commands."""
