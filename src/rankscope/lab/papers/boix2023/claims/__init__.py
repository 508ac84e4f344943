"""Claims of the paper, one module per subject."""
