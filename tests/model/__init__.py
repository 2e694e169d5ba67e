"""Reading a PyMC model."""
