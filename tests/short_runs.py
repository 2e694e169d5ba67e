"""Options for runs that only have to happen, not to converge."""

SHORT = {
    "draws": 40,
    "tune": 20,
    "chains": 2,
    "cores": 1,
    "random_seed": 11,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
}
