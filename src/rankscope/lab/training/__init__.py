"""Training of tracked networks: one loop and one evaluation for all tasks."""
