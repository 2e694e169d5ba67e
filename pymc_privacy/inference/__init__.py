"""From a model to draws."""
