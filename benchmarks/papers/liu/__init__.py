"""The simulation study of Liu et al. (PRECISE): every setting, every method, every figure."""
