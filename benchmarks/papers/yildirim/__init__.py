"""Yıldırım (2024): online estimation with adaptive truncation, beside what was published."""
