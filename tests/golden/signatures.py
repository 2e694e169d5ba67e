"""The public names and how each is called."""

import inspect
import json
from pathlib import Path

import pymc_privacy as pmp

SIGNATURES = Path(__file__).with_name("signatures.json")


def signatures():
    """Return the signature of every public function and class, by name, without annotations."""
    found = {}
    for name in pmp.__all__:
        public = getattr(pmp, name)
        if not callable(public):
            found[name] = type(public).__name__
            continue
        if issubclass(type(public), type) and "__new__" not in vars(public):
            public = public.__init__
        try:
            parameters = inspect.signature(public).parameters.values()
        except (TypeError, ValueError):
            found[name] = ""
            continue
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        found[name] = [str(p) for p in plain if p.name != "self"]
    return found


if __name__ == "__main__":
    SIGNATURES.write_text(json.dumps(signatures(), indent=1) + "\n", encoding="utf-8")
