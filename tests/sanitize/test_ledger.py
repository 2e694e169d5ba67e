"""The ledger: exact sums, refusals before any noise, two processes, crashes in every place."""

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
from pymc_privacy.sanitize.budget import covers

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


def test_a_crash_between_a_torn_line_and_the_next_is_tolerated(path):
    ledger = pmp.Ledger(path, pure(1.0))
    ledger.charge(pure(0.25), what="whole")
    path.write_bytes(path.read_bytes() + b'{"what": "to\n')
    ledger.charge(pure(0.125), what="next")
    assert [c.what for c in ledger.charges] == ["whole", "next"]


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
