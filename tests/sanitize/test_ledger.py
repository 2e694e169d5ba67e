"""The ledger: exact sums, refusals before any noise, two processes, crashes in every place."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import BudgetError, GuaranteeError, LedgerError
from pymc_privacy.sanitize import ledger as ledger_module
from pymc_privacy.sanitize import releases
from pymc_privacy.sanitize.budget import covers, together
from pymc_privacy.sanitize.seal import KEY_VARIABLE, Seal

REPLACE = {"neighbours": "replace_one"}


def pure(epsilon):
    return pmp.PureDP(epsilon, **REPLACE)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "survey.ledger"


# ---------------------------------------------------------------- arithmetic


def test_ten_tenths_are_one(path):
    ledger = pmp.Ledger(path, pure(1.0))
    for _ in range(10):
        ledger.charge(pure(0.1))
    with pytest.raises(BudgetError, match="must cover all its releases"):
        ledger.charge(pure(1e-12))
    assert ledger.spent == pure(1.0)


def test_composition_is_that_of_the_measure():
    assert covers(pmp.GaussianDP(0.5), [pmp.GaussianDP(0.3), pmp.GaussianDP(0.4)])
    assert not covers(pmp.GaussianDP(0.5), [pmp.GaussianDP(0.3), pmp.GaussianDP(0.4000001)])
    rho = pmp.ZeroConcentratedDP
    assert covers(rho(0.3), [rho(0.1), rho(0.2)])
    assert not covers(rho(0.3), [rho(0.1), rho(0.2000001)])
    # Others imply zCDP: mu^2 / 2, and epsilon tanh(epsilon / 2).
    assert covers(rho(0.6), [pmp.GaussianDP(1.0), rho(0.1)])
    assert not covers(rho(0.46), [pmp.PureDP(1.0)])
    assert covers(rho(0.47), [pmp.PureDP(1.0)])


def test_sums_of_promises_are_rounded_up_field_by_field():
    ten = together([pmp.ApproximateDP(0.1, 1e-6)] * 10)
    assert (ten.epsilon, ten.delta) == (1.0, 1e-5)
    pair = together([pmp.ApproximateDP(0.1, 0.0), pmp.ApproximateDP(0.7, 0.0)])
    assert (pair.epsilon, pair.delta) == (0.8, 0.0)
    assert together([pmp.PureDP(0.1), pmp.ApproximateDP(0.7, 1e-6)]).epsilon == 0.8
    mu = together([pmp.GaussianDP(0.1)] * 3).mu
    assert Fraction(repr(mu)) ** 2 >= 3 * Fraction("0.1") ** 2
    assert mu - 0.1 * np.sqrt(3) < 1e-16


def test_an_approximate_budget_uses_the_best_composition():
    tenth = pmp.PureDP(0.1)
    budget = pmp.ApproximateDP(5.0, 1e-6)
    # Plain sums would stop at fifty.
    assert covers(budget, [tenth] * 100)
    assert pmp.compose(*[tenth] * 100, delta=1e-6).epsilon <= 5.0
    assert not covers(budget, [tenth] * 130)
    assert not covers(budget, [pmp.ApproximateDP(0.1, 1e-5)])
    assert covers(pmp.ApproximateDP(1.0, 1e-6), [pmp.ApproximateDP(0.5, 5e-7)] * 2)


@pytest.mark.parametrize(
    ("budget", "charge"),
    [
        (pmp.PureDP(1.0, **REPLACE), pmp.ZeroConcentratedDP(0.1, **REPLACE)),
        (pmp.GaussianDP(1.0, **REPLACE), pmp.PureDP(0.1, **REPLACE)),
        (pmp.PureDP(1.0, **REPLACE), pmp.PureDP(0.1, neighbours="add_remove")),
        (pmp.PureDP(1.0, **REPLACE), pmp.PureDP(0.1)),
        (pmp.PureDP(1.0, **REPLACE), pmp.PureDP(0.1, unit="one household", **REPLACE)),
    ],
)
def test_a_charge_of_another_kind_is_refused(budget, charge, path):
    ledger = pmp.Ledger(path, budget)
    with pytest.raises(GuaranteeError, match=r"A charge must (be in|have)"):
        ledger.charge(charge)
    assert ledger.charges == ()


def test_what_is_only_nominal_cannot_be_booked(path):
    with pytest.raises(GuaranteeError, match=r"books guarantees; got None"):
        pmp.Ledger(path, pure(1.0)).charge(None)


# ---------------------------------------------------------------- releases


def test_an_overdraft_is_refused_before_any_noise_is_drawn(path, monkeypatch):
    ledger = pmp.Ledger(path, pure(1.0))
    pmp.release([0, 1], bounds=(0, 1), epsilon=0.7, ledger=ledger, **REPLACE)

    def drawn(*args):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(releases, "with_noise", drawn)
    with pytest.raises(BudgetError, match="Nothing was drawn"):
        pmp.release([0, 1], bounds=(0, 1), epsilon=0.4, ledger=ledger, **REPLACE)
    assert len(ledger.charges) == 1


def test_the_charge_is_on_disk_when_noise_is_drawn(path, monkeypatch):
    ledger = pmp.Ledger(path, pure(1.0))
    seen = []
    real = releases.with_noise

    def spy(*args):
        seen.append([charge.what for charge in pmp.Ledger(path).charges])
        return real(*args)

    monkeypatch.setattr(releases, "with_noise", spy)
    pmp.release([0, 1], bounds=(0, 1), epsilon=0.7, ledger=ledger, name="yes", **REPLACE)
    assert seen == [["yes"]]


def test_bad_records_cost_nothing(path):
    ledger = pmp.Ledger(path, pure(1.0))
    with pytest.raises(pmp.errors.ReleaseError):
        pmp.release([0.0, np.nan], bounds=(0, 1), epsilon=0.4, ledger=ledger, **REPLACE)
    assert ledger.spent is None


# ---------------------------------------------------------------- the file


def test_the_file_remembers(path):
    pmp.Ledger(path, pure(1.0)).charge(pure(0.25), what="first")
    again = pmp.Ledger(path)
    assert again.budget == pure(1.0)
    assert [(c.what, c.guarantee) for c in again.charges] == [("first", pure(0.25))]
    with pytest.raises(LedgerError, match="cannot be changed"):
        pmp.Ledger(path, pure(2.0))


def test_a_new_ledger_needs_a_budget(path):
    with pytest.raises(LedgerError, match="A new ledger needs a budget"):
        pmp.Ledger(path)
    with pytest.raises(GuaranteeError, match="must state neighbours"):
        pmp.Ledger(path, pmp.PureDP(1.0))
    with pytest.raises(GuaranteeError, match="must be a guarantee"):
        pmp.Ledger(path, 1.0)
    with pytest.raises(GuaranteeError, match="must have delta > 0"):
        pmp.Ledger(path, pmp.ApproximateDP(1.0, 0.0, **REPLACE))
    with pytest.raises(LedgerError, match="folder of a ledger must exist"):
        pmp.Ledger(path / "deeper", pure(1.0))
    assert not path.exists()


def test_a_line_torn_at_any_byte_is_tolerated(path, tmp_path):
    ledger = pmp.Ledger(path, pure(1.0))
    ledger.charge(pure(0.25), what="whole")
    before = path.read_bytes()
    ledger.charge(pure(0.5), what="torn")
    after = path.read_bytes()
    assert after.startswith(before)
    for end in range(len(before), len(after)):
        copy = tmp_path / "copy"
        copy.write_bytes(after[:end])
        torn = pmp.Ledger(copy)
        # A line that lacks nothing but its newline counts: the price is paid, if for nothing.
        there = ["whole", "torn"] if end == len(after) - 1 else ["whole"]
        assert [c.what for c in torn.charges] == there
        torn.charge(pure(0.125), what="next")
        assert [c.what for c in pmp.Ledger(copy).charges] == [*there, "next"]


def test_a_damaged_line_that_ends_in_a_newline_is_refused(path):
    ledger = pmp.Ledger(path, pure(1.0))
    ledger.charge(pure(0.25), what="whole")
    before = path.read_bytes()
    for line in (b'{"what": "to\n', b"\n", b"{}\n", b"null\n", b"[" * 100_000 + b"\n", b"\xff\n"):
        path.write_bytes(before + line)
        for use in (lambda: pmp.Ledger(path), lambda: ledger.charge(pure(0.125))):
            with pytest.raises(LedgerError, match="altered or removed"):
                use()


def test_a_new_file_torn_in_its_first_line_can_be_begun_again(path):
    path.write_bytes(b'{"budget": {"meas')
    with pytest.raises(LedgerError, match="must begin with its budget"):
        pmp.Ledger(path)
    ledger = pmp.Ledger(path, pure(1.0))
    ledger.charge(pure(0.5))
    assert len(pmp.Ledger(path).charges) == 1


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_a_line_that_was_altered_is_noticed(path, line):
    ledger = pmp.Ledger(path, pure(1.0))
    for epsilon in (0.25, 0.3125, 0.125):
        ledger.charge(pure(epsilon))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"epsilon": 0', b'"epsilon": 1').replace(b"1.0,", b"2.0,")
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="altered or removed"):
        pmp.Ledger(path)


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_line_that_was_removed_is_noticed(path, line):
    ledger = pmp.Ledger(path, pure(1.0))
    for epsilon in (0.25, 0.3125, 0.125):
        ledger.charge(pure(epsilon))
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[line]
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="altered or removed"):
        pmp.Ledger(path)


def test_every_charge_is_synced(path, monkeypatch):
    ledger = pmp.Ledger(path, pure(1.0))
    synced = []
    real = os.fsync
    monkeypatch.setattr(ledger_module.os, "fsync", lambda d: (synced.append(d), real(d)))
    ledger.charge(pure(0.5))
    assert len(synced) == 1


# ---------------------------------------------------------------- edits


def three_charges(path, **key):
    ledger = pmp.Ledger(path, pure(1.0), **key)
    for name, epsilon in (("a", 0.25), ("b", 0.3125), ("c", 0.125)):
        ledger.charge(pure(epsilon), what=name)
    return ledger, path.read_bytes()


def test_every_flipped_bit_is_refused(path):
    _, content = three_charges(path)
    for place in range(8 * len(content)):
        edited = bytearray(content)
        edited[place // 8] ^= 1 << place % 8
        path.write_bytes(edited)
        with pytest.raises(LedgerError):
            pmp.Ledger(path)


def random_edit(rng, content):
    """Return the content with a stretch overwritten, taken out, put in, doubled or moved."""
    lines = content.splitlines(keepends=True)
    start, end = sorted(rng.integers(0, len(content) + 1, 2))
    end = min(end, start + int(rng.integers(1, 60)))
    junk = rng.integers(0, 256, int(rng.integers(1, 40)), dtype=np.uint8).tobytes()
    digits = bytes(rng.choice(list(b'0123456789abcdef."{}, \n'), int(rng.integers(1, 8))))
    one, two = rng.integers(0, len(lines), 2)
    return [
        lambda: content[:start] + junk + content[start + len(junk) :],
        lambda: content[:start] + digits + content[start + len(digits) :],
        lambda: content[:start] + junk + content[start:],
        lambda: content[:start] + content[end:],
        lambda: content[:end] + content[start:],
        lambda: b"".join([*lines[:one], lines[two], *lines[one:]]),
        lambda: b"".join(line for k, line in enumerate(lines) if k != one),
        lambda: b"".join(lines[k] for k in rng.permutation(len(lines))),
    ][rng.integers(8)]()


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
def test_a_ledger_edited_at_random_is_refused_or_harmless(path, tmp_path, keyed):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(32)))
    key = {"key": secret} if keyed else {}
    live, content = three_charges(path, **key)
    paid = live.charges
    rng = np.random.default_rng(15)
    accepted = 0
    for _ in range(1000):
        edited = random_edit(rng, content)
        path.write_bytes(edited)
        with contextlib.suppress(LedgerError):
            # Whoever has seen the charges never forgets one.
            assert live.charges == paid
            assert edited.rstrip(b"\n") == content.rstrip(b"\n")
        with contextlib.suppress(LedgerError):
            # Whoever starts afresh cannot know of lines that were cut off at the end.
            fresh = pmp.Ledger(path, **key).charges
            assert fresh == paid or content.startswith(edited)
            accepted += 1
    assert accepted < 100  # most edits are seen at once


@pytest.mark.parametrize("what", ["emptied", "older", "another", "forged", "gone"])
def test_a_live_ledger_accepts_nothing_but_extensions(path, tmp_path, what):
    ledger = pmp.Ledger(path, pure(1.0))
    older = path.read_bytes()
    ledger.charge(pure(0.5), what="a")
    whole = path.read_bytes()
    other = tmp_path / "other"
    pmp.Ledger(other, pure(1.0)).charge(pure(0.25), what="a")
    content = {"emptied": b"", "older": older, "another": other.read_bytes(), "forged": older * 2}
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(content[what])
    for use in (
        lambda: ledger.charges,
        lambda: ledger.charge(pure(0.25)),
        lambda: ledger.remaining,
    ):
        with pytest.raises(LedgerError):
            use()
    assert "not usable" in repr(ledger)
    # The file that it knows, and what another process has added to it, are taken again.
    path.write_bytes(whole)
    pmp.Ledger(path).charge(pure(0.125), what="b")
    assert [charge.what for charge in ledger.charges] == ["a", "b"]


def test_a_second_budget_is_refused_even_with_the_right_seal(path):
    ledger, content = three_charges(path)
    last = json.loads(content.splitlines()[-1])["digest"]
    first = json.loads(content.splitlines()[0])
    first["budget"]["epsilon"] = 100.0
    raised = Seal(None).sealed({**first, "after": last} | {"digest": None})
    del raised["digest"]
    line = json.dumps(Seal(None).sealed({k: raised[k] for k in first if k != "digest"}))
    path.write_bytes(content + line.encode() + b"\n")
    for use in (lambda: pmp.Ledger(path), lambda: ledger.charge(pure(5.0))):
        with pytest.raises(LedgerError, match="line 5"):
            use()


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
def test_lines_that_no_ledger_writes_are_refused_even_with_the_right_seal(path, secret, keyed):
    key = {"key": secret} if keyed else {}
    _, content = three_charges(path, **key)
    seal = Seal(secret.read_bytes().rstrip() if keyed else None)
    foreign = {"measure": "gaussian", "mu": 0.1, **REPLACE, "unit": "one record"}
    other = {"measure": "pure", "epsilon": 0.1, **REPLACE, "unit": "one household"}
    for number, field, values in (
        (0, "seal", ["magic", None, "HMAC-SHA256" if not keyed else "SHA-256"]),
        (0, "at", [3, "", "yesterday", "2026-01-01", "2026-01-01T00:00:00", None]),
        (0, "budget", [foreign | {"neighbours": None}, {}, None, 1.0]),
        (2, "what", [3, "", "a ", "two\nlines", None, []]),
        (2, "at", [3, "9999-12-31T23:59:59-01:00", "2026-01-01T00:00:00.5+00:00"]),
        (2, "guarantee", [foreign, other, {}, None, 0.1]),
    ):
        for value in values:
            lines, last = [json.loads(line) for line in content.splitlines()], ""
            lines[number][field] = value
            for k, line in enumerate(lines):
                del line["digest"]
                lines[k] = seal.sealed(line | {"after": last})
                last = lines[k]["digest"]
            path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            with pytest.raises(
                LedgerError, match=r"altered or removed|must be opened with the key"
            ):
                pmp.Ledger(path, **key)


# ---------------------------------------------------------------- keys


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(b"0123456789abcdef0123456789abcdef\n")
    return file


def test_a_key_seals_what_nobody_can_forge_without_it(path, secret, tmp_path):
    ledger, content = three_charges(path, key=secret)
    assert ledger.keyed
    assert pmp.Ledger(path, key=str(secret)).charges == ledger.charges
    assert b"0123456789abcdef0123456789abcdef" not in content
    # Rewritten from the start, with seals that are right but for the key.
    path.unlink()
    three_charges(path)
    with pytest.raises(LedgerError, match=r"written without a key; got one"):
        pmp.Ledger(path, key=secret)
    with pytest.raises(LedgerError, match=r"altered or removed|written without a key"):
        ledger.charge(pure(0.1))
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"has a key; got none"):
        pmp.Ledger(path)
    other = tmp_path / "other"
    other.write_bytes(bytes(range(100, 132)))
    with pytest.raises(LedgerError, match="the key is another one"):
        pmp.Ledger(path, key=other)


def test_a_key_can_come_from_the_environment(path, secret, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "0123456789abcdef0123456789abcdef")
    ledger, _ = three_charges(path)
    assert ledger.keyed
    monkeypatch.delenv(KEY_VARIABLE)
    assert pmp.Ledger(path, key=secret).charges == ledger.charges
    assert "sealed with a key" in repr(ledger)
    assert "0123456789abcdef" not in repr(vars(ledger))


def test_a_key_that_can_be_guessed_or_read_by_nobody_is_refused(path, tmp_path, monkeypatch):
    short = tmp_path / "short"
    short.write_bytes(b"secret\n")
    for key, sentence in (
        (short, "16 bytes"),
        (tmp_path / "none", "No such"),
        (7, "must be a path"),
    ):
        with pytest.raises(LedgerError, match=sentence):
            pmp.Ledger(path, pure(1.0), key=key)
    monkeypatch.setenv(KEY_VARIABLE, "")
    with pytest.raises(LedgerError, match="16 bytes"):
        pmp.Ledger(path, pure(1.0))
    assert not path.exists()


# ---------------------------------------------------------------- what is left


@pytest.mark.parametrize(
    ("budget", "charges", "rest"),
    [
        (pmp.PureDP(1.0, **REPLACE), [0.1] * 9, 0.1),
        (pmp.PureDP(1.0, **REPLACE), [0.1, 0.2], 0.7),
        (pmp.PureDP(1.0, **REPLACE), [1 / 3, 1 / 3], 1 / 3),
        (pmp.ZeroConcentratedDP(0.5, **REPLACE), [0.1], 0.4),
        (pmp.GaussianDP(0.5, **REPLACE), [0.3], 0.4),
        (pmp.GaussianDP(1e300, **REPLACE), [6e299], 8e299),
        (pmp.GaussianDP(1e-200, **REPLACE), [6e-201], 8e-201),
        (pmp.ApproximateDP(1.0, 1e-6, **REPLACE), [], 1.0),
    ],
)
def test_what_remains_is_accepted_and_no_more(path, budget, charges, rest):
    kind = pmp.PureDP if isinstance(budget, pmp.ApproximateDP) else type(budget)
    ledger = pmp.Ledger(path, budget)
    for value in charges:
        ledger.charge(kind(value, **REPLACE))
    value = vars(ledger.remaining)[kind.__match_args__[0]]
    # A pure epsilon is worth a little more where there is a delta.
    assert value == pytest.approx(rest, rel=1e-5)
    with pytest.raises(BudgetError):
        ledger.charge(kind(value * (1 + 1e-9), **REPLACE))
    ledger.charge(ledger.remaining)
    left = ledger.remaining
    assert left is None or vars(left)[kind.__match_args__[0]] < 1e-5 * value


def test_the_representation_says_what_was_spent(path):
    ledger, _ = three_charges(path)
    said = repr(ledger)
    assert str(path) in said
    assert "without a key" in said
    assert "Budget: 1-DP (pure)" in said
    assert "3 charges: 0.6875-DP" in said
    assert "Remaining: 0.3125-DP" in said


def test_a_name_is_charged_once_where_that_is_asked_for(path):
    ledger, content = three_charges(path)
    with pytest.raises(LedgerError, match=r"different names.*got 'b' again"):
        ledger.charge(pure(0.1), what="b", unique=True)
    with pytest.raises(LedgerError, match="different names"):
        ledger.check(pure(0.1), what="b", unique=True)
    with pytest.raises(BudgetError):
        ledger.check(pure(0.9))
    ledger.check(pure(0.1), what="d", unique=True)
    assert path.read_bytes() == content
    ledger.charge(pure(0.1), what="b")


def test_names_that_look_alike_are_alike(path):
    ledger, content = three_charges(path)
    for name in ("a ", " a", "a\u00a0", "a\u200b"):
        with pytest.raises(LedgerError, match="without white space at its ends"):
            ledger.charge(pure(0.1), what=name, unique=True)
        with pytest.raises(pmp.errors.ReleaseError, match="name must be a line of text"):
            pmp.release([0, 1], bounds=(0, 1), epsilon=0.1, name=name, ledger=ledger, **REPLACE)
    assert path.read_bytes() == content


def test_the_budget_is_that_of_the_file(path):
    ledger, _ = three_charges(path)
    with pytest.raises(AttributeError):
        ledger.budget = pure(100.0)
    with pytest.raises(BudgetError):
        ledger.charge(pure(50.0))
    assert ledger.budget == pure(1.0)


def test_the_name_of_a_release_is_used_once_unless_said_otherwise(path):
    ledger = pmp.Ledger(path, pure(1.0))
    options = {"bounds": (0, 1), "epsilon": 0.1, **REPLACE}
    pmp.release([0, 1], name="yes", ledger=ledger, **options)
    with pytest.raises(LedgerError, match=r"different names.*got 'yes' again"):
        pmp.release([0, 1], name="yes", ledger=ledger, **options)
    assert len(ledger.charges) == 1
    relaxed = pmp.Ledger(path, unique_names=False)
    pmp.release([0, 1], name="yes", ledger=relaxed, **options)
    for _ in range(2):  # without a name there is none to be mistaken
        pmp.release([0, 1], ledger=ledger, **options)
    assert [charge.what for charge in ledger.charges] == ["yes", "yes", "release", "release"]


def test_a_file_that_cannot_be_a_ledger_is_refused(path, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"")
    for wrong in (tmp_path, tmp_path / "pipe", tmp_path / "file" / "below", "/dev/null", "x" * 300):
        with pytest.raises(LedgerError, match=r"must be an ordinary file|can be read and written"):
            pmp.Ledger(wrong, pure(1.0))

    def denied(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ledger_module.os, "open", denied)
    with pytest.raises(LedgerError, match=r"can be read and written.*Permission denied"):
        pmp.Ledger(path, pure(1.0))


def test_a_disk_that_is_full_is_told(path, monkeypatch):
    ledger = pmp.Ledger(path, pure(1.0))

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ledger_module.os, "write", full)
        with pytest.raises(LedgerError, match=r"No space left.*Nothing was drawn"):
            ledger.charge(pure(0.5))
    assert ledger.charges == ()


# ---------------------------------------------------------------- processes

# The pure half alone, so that a process starts fast.
SPENDER = """
import sys, types
package = types.ModuleType("pymc_privacy")
package.__path__ = [sys.argv[1]]
sys.modules["pymc_privacy"] = package
from pymc_privacy.accounting import PureDP
from pymc_privacy.errors import BudgetError
from pymc_privacy.sanitize.ledger import Ledger

ledger = Ledger(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[5])):
    try:
        ledger.charge(PureDP(float(sys.argv[4]), neighbours="replace_one"), what=sys.argv[3])
    except BudgetError:
        break
    print("paid", flush=True)
"""


def spender(path, name, epsilon, most):
    """Start a process that charges until the budget is spent, and says so after each charge."""
    package = os.path.dirname(pmp.__file__)
    return subprocess.Popen(
        [sys.executable, "-c", SPENDER, package, str(path), name, str(epsilon), str(most)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_together(*processes):
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def paid_by(process):
    """Wait for the end, and count the charges that were confirmed and not read yet."""
    # `communicate` would pass over what `readline` has buffered.
    paid = process.stdout.read().count("paid")
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=60)
    return paid


def spent_exactly(path):
    return sum(Fraction(repr(c.guarantee.epsilon)) for c in pmp.Ledger(path).charges)


def test_two_processes_never_overspend_and_lose_nothing(path):
    pmp.Ledger(path, pure(1.0))
    # A hundred charges are there to be had, and each wants seventy.
    both = [spender(path, name, 0.01, 70) for name in ("one", "two")]
    start_together(*both)
    paid = [paid_by(process) for process in both]
    assert all(process.returncode == 0 for process in both)
    names = [charge.what for charge in pmp.Ledger(path).charges]
    assert [names.count("one"), names.count("two")] == paid
    assert min(paid) >= 30
    assert spent_exactly(path) == 1


def test_a_process_killed_in_the_middle_loses_nothing_and_frees_the_lock(path):
    pmp.Ledger(path, pure(10**6))
    confirmed = 0
    for attempt in range(2):
        process = spender(path, f"killed {attempt}", 0.001, 10**6)
        start_together(process)
        while process.stdout.readline() != "paid\n":
            pass
        time.sleep(0.05 + 0.03 * attempt)
        process.send_signal(signal.SIGKILL)
        confirmed += 1 + paid_by(process)
        assert process.returncode == -signal.SIGKILL
        # Each charge that was confirmed is there; at most one more was written unannounced.
        charges = pmp.Ledger(path).charges
        assert confirmed <= len(charges) <= confirmed + attempt + 1
    before = len(pmp.Ledger(path).charges)
    pmp.Ledger(path).charge(pure(0.5), what="after")
    assert len(pmp.Ledger(path).charges) == before + 1


def test_a_process_killed_while_writing_leaves_a_line_that_does_not_count(path):
    # The write itself is cut in two, and the process dies in between.
    pmp.Ledger(path, pure(1.0))
    halfway = SPENDER.replace(
        "ledger = Ledger(sys.argv[2])",
        "import os, signal\n"
        "from pymc_privacy.sanitize import ledger as module\n"
        "real = os.write\n"
        "def half(descriptor, data):\n"
        "    real(descriptor, data[: len(data) // 2])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ledger = Ledger(sys.argv[2])\n"
        "os.write = half",
    )
    package = os.path.dirname(pmp.__file__)
    command = [sys.executable, "-c", halfway, package, str(path), "torn", "0.9", "1"]
    result = subprocess.run(command, input="go\n", text=True, capture_output=True, check=False)
    assert result.returncode == -signal.SIGKILL
    assert not path.read_bytes().endswith(b"\n")
    ledger = pmp.Ledger(path)
    assert ledger.charges == ()
    ledger.charge(pure(1.0))
    assert spent_exactly(path) == 1
