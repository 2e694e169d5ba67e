"""A budget that cannot be overspent: an append-only file, fsynced, locked, and chained.

Each line is a JSON object with a seal of its own content, in which the seal of the line before it
is named. A charge is written and synced to disk before the caller may draw noise, under an
exclusive lock on the file. What follows from this:

* a process that dies before its line is complete has drawn nothing; the beginning of a line that
  it leaves at the end of the file counts for nothing, and is cut off by the next charge;
* a process that dies afterwards has its charge on record, whether or not it drew noise;
* every line that ends in a newline must be, byte for byte, what a ledger writes, with the right
  seal and the right predecessor; else the ledger refuses to be used;
* a live ledger remembers how many lines it has seen, and the last seal; it accepts a longer file
  that begins with them, and no other.

Without a key the seal is a SHA-256 digest: it notices accidents, and whoever can write the file
can forge it. With a key it is an HMAC, which nobody can forge who does not have the key. In neither
case can a process that starts afresh notice that lines are missing at the end, or that the whole
file is an older copy: keep it where nobody puts old copies.
"""

from __future__ import annotations

import datetime
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import flag, shown, title
from pymc_privacy.arguments import path as checked_path
from pymc_privacy.errors import BudgetError, GuaranteeError, LedgerError
from pymc_privacy.sanitize.budget import can_be_charged, check_budget, covers, left, total
from pymc_privacy.sanitize.plain import to_plain
from pymc_privacy.sanitize.seal import Seal, secret_of, torn


@dataclass(frozen=True)
class Charge:
    """One entry of a ledger: what was paid for, when, and how much."""

    what: str
    guarantee: Guarantee
    at: str


class _Content(NamedTuple):
    """What a file says: its budget, its charges, the seals of all lines, and where they end."""

    budget: Guarantee | None
    charges: list[Charge]
    seals: list[str]
    length: int
    newline: bool


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
    key : path_like, optional
        A file that holds a secret of 16 bytes or more. With it the lines are sealed, and nobody
        can alter or add one who does not have the secret; without it the file is safe from
        accidents only. By default the secret is the environment variable
        ``PYMC_PRIVACY_LEDGER_KEY``, where that is set.
    unique_names : bool
        Whether a name that was given to a release is refused when it was charged for before.

    Raises
    ------
    LedgerError
        By the constructor, if a new file has no budget or an existing one another, if the file is
        damaged or cannot be used, or if the key is not the right one.
    GuaranteeError
        By the constructor, if the budget is no guarantee or states no neighbours; and by a charge
        in another measure.
    BudgetError
        By a charge that is more than what is left.

    See Also
    --------
    release : Charges a ledger before it draws noise.
    compose : How an (epsilon, delta) budget is compared.

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
    >>> print(ledger.remaining)
    0.1-DP (pure), neighbours: replace one record, unit: one record
    >>> pmp.release(answers, bounds=(0, 1), epsilon=0.2, neighbours="replace_one", ledger=ledger)
    Traceback (most recent call last):
        ...
    pymc_privacy.errors.BudgetError: ...
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        budget: Guarantee | None = None,
        *,
        key: str | os.PathLike[str] | None = None,
        unique_names: bool = True,
    ):
        self._unique_names = flag("unique_names", unique_names, error=LedgerError)
        self.path = checked_path("path", path, error=LedgerError)
        self._seal = Seal(secret_of(key))
        self._count, self._last = 0, ""
        if budget is not None:
            check_budget(budget)
        with self._locked(create=budget is not None) as descriptor:
            content = self._read(descriptor)
            if content.budget is None:
                content = self._begin(descriptor, content, budget)
            elif budget is not None and budget != content.budget:
                raise LedgerError(
                    f"The budget of an existing ledger cannot be changed; {self.path} has "
                    f"{content.budget}; got {budget}."
                )
            assert content.budget is not None
            self._budget: Guarantee = content.budget

    def __repr__(self) -> str:
        seal = "sealed with a key" if self.keyed else "without a key"
        try:
            charges = self.charges
        except LedgerError as error:
            return f"<Ledger {self.path}, {seal}: not usable. {error}>"
        spent = total(self.budget, [c.guarantee for c in charges]) if charges else "nothing"
        return (
            f"<Ledger {self.path}, {seal}. Budget: {self.budget}. Spent on {len(charges)} charges: "
            f"{spent}. Remaining: {self.remaining or 'nothing'}>"
        )

    @property
    def budget(self) -> Guarantee:
        """Return what all charges together may promise; the file says it, and nobody changes it."""
        return self._budget

    @property
    def keyed(self) -> bool:
        """Return whether lines are sealed with a key, and so safe from malice."""
        return self._seal.key is not None

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Return everything that was paid for, oldest first."""
        with self._locked() as descriptor:
            return tuple(self._read(descriptor).charges)

    @property
    def spent(self) -> Guarantee | None:
        """Return what all charges promise together, or None when there are none."""
        charges = self.charges
        return total(self.budget, [c.guarantee for c in charges]) if charges else None

    @property
    def remaining(self) -> Guarantee | None:
        """Return the largest charge that would still be accepted, or None when there is none.

        Of an (epsilon, delta) budget it is a pure one.
        """
        return left(self.budget, [c.guarantee for c in self.charges])

    def check(self, guarantee: Guarantee, *, what: str = "release", unique: bool = False) -> None:
        """Refuse what `charge` would refuse, and write nothing.

        For whoever has more to check before the money is spent; parameters as for `charge`.
        """
        with self._locked() as descriptor:
            self._refuse(self._read(descriptor).charges, guarantee, what, unique)

    def charge(
        self, guarantee: Guarantee, *, what: str = "release", unique: bool = False
    ) -> Charge:
        """Write a charge to disk, or refuse it; draw no noise before this returns.

        Everything else that can be refused must have been before: what is written is spent.

        Parameters
        ----------
        guarantee : Guarantee
            With the neighbours and the unit of the budget.
        what : str
            Recorded with it.
        unique : bool
            Refuse a `what` that was charged for before, as of a release whose card it would
            overwrite, unless the ledger was opened with ``unique_names=False``.
        """
        with self._locked() as descriptor:
            content = self._read(descriptor)
            self._refuse(content.charges, guarantee, what, unique)
            entry = Charge(what, guarantee, _now())
            line = {"what": what, "guarantee": to_plain(guarantee), "at": entry.at}
            self._append(descriptor, line, content)
        return entry

    def _refuse(self, before: list[Charge], wanted: Any, what: Any, unique: bool) -> None:
        if not isinstance(wanted, Guarantee):
            raise GuaranteeError(
                f"A ledger books guarantees; got {shown(wanted)}, as of a result that is only "
                "nominal."
            )
        title("what", what, meaning="what the charge is for", error=LedgerError)
        spent = [charge.guarantee for charge in before]
        if not covers(self.budget, [*spent, wanted]):
            raise BudgetError(
                f"The budget of {self.path} must cover all its releases; it is {self.budget}, "
                f"spent so far: {total(self.budget, spent) if spent else 'nothing'}; got a charge "
                f"of {wanted} for {what!r}. Nothing was drawn."
            )
        unique = flag("unique", unique, error=LedgerError) and self._unique_names
        if unique and any(charge.what == what for charge in before):
            raise LedgerError(
                "Releases of the same records must have different names, or the card of one would "
                f"pass for that of another; got {what!r} again. Nothing was drawn."
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
        descriptor = self._open(create)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LedgerError(f"A ledger must be an ordinary file; got {self.path}.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, create: bool) -> int:
        # Without waiting for the other end of a pipe, which is refused afterwards.
        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | (os.O_CREAT if create else 0)
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            if create:
                raise LedgerError(
                    f"The folder of a ledger must exist; got {self.path}, whose folder does not."
                ) from None
            if self._count:
                raise LedgerError(
                    f"A ledger in use must stay where it is; {self.path} is gone."
                ) from None
            raise LedgerError(
                f"A new ledger needs a budget, such as PureDP(1.0, neighbours='replace_one'); got "
                f"none, and there is no file {self.path}."
            ) from None
        except OSError as error:
            raise LedgerError(
                f"A ledger must be a file that can be read and written, in a folder that it can be "
                f"made in; got {self.path} ({error.strerror})."
            ) from None

    def _begin(self, descriptor: int, content: _Content, budget: Guarantee | None) -> _Content:
        if budget is None:
            raise LedgerError(
                f"A ledger must begin with its budget; got an empty file {self.path}."
            )
        line = {"budget": to_plain(budget), "seal": self._seal.name, "at": _now()}
        self._append(descriptor, line, content)
        directory = os.open(self.path.resolve().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return content._replace(budget=budget)

    def _append(self, descriptor: int, line: dict[str, Any], content: _Content) -> None:
        """Write one line and wait until it is on disk; cut off first what is left of a torn one."""
        last = content.seals[-1] if content.seals else ""
        sealed = self._seal.sealed({**line, "after": last})
        rest = b"" if content.newline else b"\n"
        rest += json.dumps(sealed).encode() + b"\n"
        try:
            os.ftruncate(descriptor, content.length)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError as error:
            raise LedgerError(
                f"A charge must be on disk before noise is drawn; writing to {self.path} failed "
                f"({error.strerror}). Nothing was drawn; the charge may be on record."
            ) from None
        self._count, self._last = len(content.seals) + 1, sealed["digest"]

    def _read(self, descriptor: int) -> _Content:
        """Return what the file says, if it extends what this object has seen.

        The last line may lack its newline, and counts if that is all it lacks: too much is charged
        rather than too little. It may be the beginning of a line, and then counts for nothing.
        """
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            whole = stream.read()
        *lines, tail = whole.split(b"\n")
        length, newline = len(whole) - len(tail), True
        if tail and not torn(tail):
            lines, length, newline = [*lines, tail], len(whole), False
        budget, charges, seals = None, [], [""]
        for number, raw in enumerate(lines, start=1):
            line = self._seal.opened(raw, after=seals[-1], first=number == 1)
            if line is None or (number > 1 and not can_be_charged(budget, line["guarantee"])):
                where = f"line {number} of {self.path}"
                raise LedgerError(self._seal.damage(raw, where, first=number == 1))
            seals.append(line["digest"])
            if number == 1:
                budget = line["budget"]
            else:
                charges.append(Charge(line["what"], line["guarantee"], line["at"]))
        if len(seals) <= self._count or seals[self._count] != self._last:
            raise LedgerError(
                f"A ledger in use may only grow; {self.path} no longer has the {self._count} lines "
                "that this object has seen: it was replaced, or something was altered or removed."
            )
        self._count, self._last = len(seals) - 1, seals[-1]
        return _Content(budget, charges, seals[1:], length, newline)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
