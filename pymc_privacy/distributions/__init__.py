"""Distributions for PyMC models."""
