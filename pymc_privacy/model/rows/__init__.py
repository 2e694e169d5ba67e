"""The per-record compiler: from graphs over all records to sums of one record at a time."""
