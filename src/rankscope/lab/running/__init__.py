"""Executing runs: identity, files on disk, processes, threads, clusters."""
