"""Reading a PyMC model: its records, what sees them, and the programs of a sweep."""
