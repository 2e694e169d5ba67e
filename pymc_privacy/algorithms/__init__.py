"""Pure algorithms: State, Info, init and step, over arrays."""
