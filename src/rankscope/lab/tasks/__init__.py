"""What the networks of yunis2024 learn: each a frozen config that builds a `Problem`."""
