"""Guo, Barrientos and Peña: every method of the paper, its simulation study and its Table 2."""
