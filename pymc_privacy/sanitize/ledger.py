"""A budget that cannot be overspent: an append-only file, fsynced, locked, and chained.

Each line is a JSON object with the SHA-256 digest of its own content and that of the last valid
line before it. A charge is written and synced to disk before the caller may draw noise, under an
exclusive lock on the file. What follows from this:

* a process that dies before its line is complete has drawn nothing, and its torn line, which no
  digest confirms and no later line refers to, counts for nothing;
* a process that dies afterwards has its charge on record, whether or not it drew noise;
* a line that is altered or lost in the middle breaks the chain, and the ledger refuses to be used.
  Lines cut off at the end cannot be noticed: keep the file where nobody cuts it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymc_privacy.accounting import Guarantee
from pymc_privacy.errors import BudgetError, GuaranteeError, LedgerError
from pymc_privacy.sanitize.budget import check_budget, covers, total
from pymc_privacy.sanitize.plain import from_plain, to_plain


@dataclass(frozen=True)
class Charge:
    """One entry of a ledger: what was paid for, when, and how much."""

    what: str
    guarantee: Guarantee
    at: str


class Ledger:
    """A total budget for one set of records, on file, from which releases draw.

    Composition is exact for the measure of the budget: epsilons (pure) and rhos (zero-concentrated)
    add as decimal numbers, mus (Gaussian) in squares, and an (epsilon, delta) budget is compared
    with `compose` at its delta. Releases may be chosen in view of earlier ones, their prices may
    not (not checked).

    Parameters
    ----------
    path : path_like
        The file. It is made, with its budget, if it is not there.
    budget : Guarantee, optional
        Required for a new file; for an existing one it must be the same, or left out.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pymc_privacy as pmp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "survey.ledger"
    >>> ledger = pmp.Ledger(path, pmp.PureDP(1.0, neighbours="replace_one"))
    >>> answers = [0, 1, 1, 0]
    >>> published = pmp.release(
    ...     answers, bounds=(0, 1), epsilon=0.9, neighbours="replace_one", ledger=ledger
    ... )
    >>> print(ledger.spent)
    0.9-DP (pure), neighbours: replace one record, unit: one record
    >>> pmp.release(answers, bounds=(0, 1), epsilon=0.2, neighbours="replace_one", ledger=ledger)
    Traceback (most recent call last):
        ...
    pymc_privacy.errors.BudgetError: ...
    """

    def __init__(self, path: str | os.PathLike[str], budget: Guarantee | None = None):
        self.path = Path(path)
        if budget is not None:
            check_budget(budget)
        with self._locked(create=budget is not None) as descriptor:
            found, *_ = self._read(descriptor)
            if found is None:
                self._begin(descriptor, budget)
            elif budget is not None and budget != found:
                raise LedgerError(
                    f"The budget of an existing ledger cannot be changed; {self.path} has {found}; "
                    f"got {budget}."
                )
            self.budget: Guarantee = found or budget  # type: ignore[assignment]

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Return everything that was paid for, oldest first."""
        with self._locked() as descriptor:
            return tuple(self._read(descriptor)[1])

    @property
    def spent(self) -> Guarantee | None:
        """Return what all charges promise together, or None when there are none."""
        charges = self.charges
        return total(self.budget, [c.guarantee for c in charges]) if charges else None

    def charge(self, guarantee: Guarantee, *, what: str = "release") -> Charge:
        """Write a charge to disk, or refuse it; draw no noise before this returns.

        Parameters
        ----------
        guarantee : Guarantee
            With the neighbours and the unit of the budget.
        what : str
            Recorded with it.
        """
        if guarantee is None:
            raise GuaranteeError(
                "A ledger books guarantees; got None, as of a result that is only nominal."
            )
        with self._locked() as descriptor:
            _, charges, last, torn = self._read(descriptor)
            self._refuse_overdraft([c.guarantee for c in charges], guarantee, what)
            entry = Charge(what, guarantee, _now())
            line = {"what": what, "guarantee": to_plain(guarantee), "at": entry.at}
            self._append(descriptor, line, last, torn)
        return entry

    def _refuse_overdraft(self, before: list[Guarantee], wanted: Guarantee, what: str) -> None:
        if not covers(self.budget, [*before, wanted]):
            spent = total(self.budget, before) if before else "nothing"
            raise BudgetError(
                f"The budget of {self.path} must cover all its releases; it is {self.budget}, "
                f"spent so far: {spent}; got a charge of {wanted} for {what!r}. Nothing was drawn."
            )

    # ---------------------------------------------------------------- the file

    @contextmanager
    def _locked(self, create: bool = False) -> Iterator[int]:
        """Open the file with an exclusive lock, which the system drops when the process dies."""
        try:
            import fcntl
        except ImportError:
            raise LedgerError(
                "A ledger needs file locks of a POSIX system, without which two processes could "
                "spend the same budget; got a system without fcntl."
            ) from None
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            if create:
                raise LedgerError(
                    f"The folder of a ledger must exist; got {self.path}, whose folder does not."
                ) from None
            raise LedgerError(
                f"A new ledger needs a budget, such as PureDP(1.0, neighbours='replace_one'); got "
                f"none, and there is no file {self.path}."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _begin(self, descriptor: int, budget: Guarantee | None) -> None:
        if budget is None:
            raise LedgerError(
                f"A ledger must begin with its budget; got an empty file {self.path}."
            )
        torn = os.fstat(descriptor).st_size > 0
        self._append(descriptor, {"budget": to_plain(budget), "at": _now()}, "", torn)
        directory = os.open(self.path.resolve().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _append(self, descriptor: int, line: dict[str, Any], last: str, torn: bool) -> None:
        """Write one line and wait until it is on disk.

        After a torn line a newline comes first, so that the two do not run together.
        """
        text = ("\n" if torn else "") + _sealed({**line, "after": last}) + "\n"
        rest = text.encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)

    def _read(self, descriptor: int) -> tuple[Guarantee | None, list[Charge], str, bool]:
        """Return budget, charges, the last valid digest, and whether a newline is missing.

        A line that lacks nothing but its newline counts: too much is charged rather than too
        little.
        """
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            content = stream.read()
        budget, charges, last = None, [], ""
        lines = content.split(b"\n")
        for number, raw in enumerate(lines, start=1):
            line = _opened(raw)
            if line is None and not _complete(raw):
                continue  # torn: nothing was drawn for it
            # A complete line that vanished is still named by the line after it.
            if line is None or line["after"] != last:
                raise LedgerError(
                    "Each line of a ledger must have a right digest and name the line before it; "
                    f"line {number} of {self.path} does not: something was altered or removed."
                )
            last = line["digest"]
            if "budget" in line:
                budget = from_plain(line["budget"])
            else:
                charges.append(Charge(line["what"], from_plain(line["guarantee"]), line["at"]))
        return budget, charges, last, bool(lines[-1])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _sealed(line: dict[str, Any]) -> str:
    """Return the line as JSON, with the digest of everything else in it."""
    return json.dumps({**line, "digest": _digest(json.dumps(line))})


def _complete(raw: bytes) -> bool:
    """Return whether a line was written to its end; no proper beginning of a line is."""
    return b'"digest": "' in raw and raw.endswith(b'"}')


def _opened(raw: bytes) -> dict[str, Any] | None:
    """Return a line whose digest is right, else None."""
    try:
        line = json.loads(raw)
        content = {key: value for key, value in line.items() if key != "digest"}
        return line if line["digest"] == _digest(json.dumps(content)) else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
