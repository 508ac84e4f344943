"""Networks: each module has a frozen config with `build()` beside its network."""
