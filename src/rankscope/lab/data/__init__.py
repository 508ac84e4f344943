"""Data of the experiments: each a frozen config with `build()`."""
