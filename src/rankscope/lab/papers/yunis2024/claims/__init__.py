"""The claims of the paper, one module per subject. Each claim is a `Rule`, named by its key."""
