"""Compare what is compiled from a model with the model itself."""
