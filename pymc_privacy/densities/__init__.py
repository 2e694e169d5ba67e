"""Log densities and draws that samplers move by, written from a model."""
