"""Functions of graphs."""
