"""`python -m tests.golden [name ...]` writes the draws of models, of all by default, anew."""

import json
import sys

from tests.golden import DRAWS, stored
from tests.golden.models import MODELS, draws_of

if __name__ == "__main__":
    draws = stored()
    for name in sys.argv[1:] or MODELS:
        draws[name] = draws_of(name)
    ordered = {name: draws[name] for name in MODELS if name in draws}
    DRAWS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
