"""From graphs to functions of arrays and one generator."""
