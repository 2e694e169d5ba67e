"""Reading a PyMC model: what it consists of, its densities, where it starts."""
