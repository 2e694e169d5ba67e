"""Special functions and exact integer algebra."""
