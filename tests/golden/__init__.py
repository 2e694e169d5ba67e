"""Draws that must stay what they are when code moves without changing."""

import json
from pathlib import Path

DRAWS = Path(__file__).with_name("draws.json")


def stored():
    """Return the draws that were written last."""
    return json.loads(DRAWS.read_text(encoding="utf-8")) if DRAWS.exists() else {}
