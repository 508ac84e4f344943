"""Tasks for the networks: each is a frozen dataclass that builds a `Problem`."""
