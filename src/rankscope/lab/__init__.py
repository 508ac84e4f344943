"""The laboratory: models, data and experiments of the two papers."""
