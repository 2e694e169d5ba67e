"""What tuning learns, and nothing after it."""
