"""Training networks while they are followed: one loop, one evaluation, many tasks."""
