"""From a model to the compiled functions of each sampler."""
