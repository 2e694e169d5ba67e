"""The lines of a ledger: each a JSON object with a seal of its own content.

The seal is a SHA-256 digest, or an HMAC-SHA256 where there is a key. A line is genuine if it is,
byte for byte, what would be written for its content: no bit of it can be changed.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from typing import Any

from pymc_privacy.arguments import path, title
from pymc_privacy.errors import LedgerError
from pymc_privacy.sanitize.budget import check_budget
from pymc_privacy.sanitize.plain import from_plain

KEY_VARIABLE = "PYMC_PRIVACY_LEDGER_KEY"
_SHORTEST_KEY = 16  # bytes
_BUDGET_LINE = ["budget", "seal", "at", "after", "digest"]
_CHARGE_LINE = ["what", "guarantee", "at", "after", "digest"]


@dataclass(frozen=True, repr=False)
class Seal:
    """What confirms a line: with a key, only who has the key can make it."""

    key: bytes | None

    @property
    def name(self) -> str:
        """Return how lines are sealed."""
        return "SHA-256" if self.key is None else "HMAC-SHA256"

    def sealed(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content with its seal, the digest of everything else in the line."""
        data = json.dumps(content).encode()
        if self.key is None:
            return {**content, "digest": hashlib.sha256(data).hexdigest()}
        return {**content, "digest": hmac.new(self.key, data, "sha256").hexdigest()}

    def opened(self, raw: bytes, *, after: str, first: bool) -> dict[str, Any] | None:
        """Return a genuine line with its guarantee, which names the line before it; else None."""
        try:
            line = json.loads(raw)
            if list(line) != (_BUDGET_LINE if first else _CHARGE_LINE) or line["after"] != after:
                return None
            content = {name: value for name, value in line.items() if name != "digest"}
            if not hmac.compare_digest(json.dumps(self.sealed(content)).encode(), raw):
                return None
            at = datetime.datetime.fromisoformat(line["at"])
            if at.tzinfo != datetime.UTC or at.isoformat(timespec="seconds") != line["at"]:
                return None
            if first:
                line["budget"] = from_plain(line["budget"])
                check_budget(line["budget"])
                return line if line["seal"] == self.name else None
            title("what", line["what"])
            line["guarantee"] = from_plain(line["guarantee"])
            return line
        # Errors of this package are ValueErrors, too.
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return None

    def damage(self, raw: bytes, where: str, *, first: bool) -> str:
        """Say what is the matter with a line that is not genuine."""
        other = "SHA-256" if self.key else "HMAC-SHA256"
        if first and f'"seal": "{other}"'.encode() in raw:
            written = "was written without a key; got one" if self.key else "has a key; got none"
            return (
                f"A ledger must be opened with the key that it was written with; {where} {written}."
            )
        return (
            f"Each line of a ledger must have the right seal and name the line before it; {where} "
            "does not: something was altered or removed"
            f"{', or the key is another one' if self.key else ''}."
        )


def torn(tail: bytes) -> bool:
    """Return whether the end of a file can be the beginning of a line that was cut short.

    Then it is JSON that is wrong nowhere but at its end, where a word, a number or an escape may
    be incomplete. A line that is complete, or damaged before its end, is not torn.

    Examples
    --------
    >>> torn(b'{"what": "rel'), torn(b'{"what": "rel"}'), torn(b'{"what"- "release", "at')
    (True, False, False)
    """
    try:
        line = tail.decode("ascii")
        if not line.isprintable():
            return False
        json.loads(line)
    except UnicodeDecodeError:
        return False
    except json.JSONDecodeError as error:
        if error.msg.startswith("Extra data"):
            return False
        return error.msg.startswith("Unterminated string") or error.pos >= len(line) - 6
    except (ValueError, RecursionError):
        return False
    return False


def secret_of(key: Any) -> bytes | None:
    """Return the secret of a file, or by default of the environment; None where there is none."""
    if key is None:
        found = os.environ.get(KEY_VARIABLE)
        if found is None:
            return None
        secret, where = os.fsencode(found), KEY_VARIABLE
    else:
        file = path("key", key, meaning="a file with a secret", error=LedgerError)
        where = str(file)
        if file.exists() and not file.is_file():
            raise LedgerError(f"key must be an ordinary file with a secret; got {where}.")
        try:
            secret = file.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise LedgerError(
                f"key must be a file with a secret; got {where} ({error.strerror})."
            ) from None
    if len(secret) < _SHORTEST_KEY:
        raise LedgerError(
            f"A key must have {_SHORTEST_KEY} bytes or more, or it can be guessed; got "
            f"{len(secret)} from {where}."
        )
    return secret
