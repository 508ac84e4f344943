"""The figures of the paper; `captions` lists them by number."""
