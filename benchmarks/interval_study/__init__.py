"""The parts of the study of private intervals: its tasks, Table 4, and what the page shows."""
