"""`release_composition`: sums over shares that may be published, with one charge and one card.

What is published are sums of logarithms of shares, censored at a threshold that is public or was
chosen by noisy counts, or sums of the shares themselves. Each part is a release like any other; the
parts follow from one plan and were paid for together, before any noise was drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_privacy.arguments import generator, instance, refusal, shown, title
from pymc_privacy.errors import InsecureNoiseWarning, ReleaseError
from pymc_privacy.sanitize.calibrate import level_of, promised
from pymc_privacy.sanitize.composition_plan import CompositionPlan
from pymc_privacy.sanitize.exact_noise import ExactNoise, Noise, SimulatedNoise
from pymc_privacy.sanitize.group_labels import by_group, group_label
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.plan import ReleasePlan, charge, checked_ledger
from pymc_privacy.sanitize.publication import SIMULATED, Publication
from pymc_privacy.sanitize.releases import Release, with_noise
from pymc_privacy.sanitize.rows import rows
from pymc_privacy.sanitize.shares import checked_parts, whole_shares

_NAME = "composition"


@dataclass(frozen=True)
class CompositionRelease(Publication):
    """What was published of shares: the parts of one plan, with one guarantee for all of them.

    Parameters
    ----------
    plan : CompositionPlan
    releases : tuple of Release
        Noisy counts where a threshold was chosen, sums of logarithms, sums of shares: those that
        the plan has, in this order.
    group : str, optional
        Whose shares, where the plan is of groups.

    Raises
    ------
    ReleaseError
        By the constructor, if the releases are not those of the plan.

    See Also
    --------
    release_composition : Makes one.
    PrivatizedComposition : Puts one into a model.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release_composition(
    ...     [[0.2, 0.8], [0.5, 0.5]], epsilon=0.5, threshold=0.1, neighbours="replace_one"
    ... )
    >>> published.threshold, published.size, published.label
    (0.1, 2, 'proven')
    """

    plan: CompositionPlan
    releases: tuple[Release, ...]
    group: str | None = None

    def __post_init__(self) -> None:
        instance("plan", self.plan, CompositionPlan, "a CompositionPlan", error=ReleaseError)
        if (self.group is not None) != self.plan.grouped:
            raise ReleaseError(
                "group must be named where a plan is of groups, and only there; got "
                f"{shown(self.group)}."
            )
        if self.group is not None:
            title("group", self.group, error=ReleaseError)
        kinds = isinstance(self.releases, tuple) and all(
            isinstance(one, Release) for one in self.releases
        )
        if not kinds or [one.plan for one in self.releases] != self._wanted():
            raise ReleaseError(
                "The releases of a composition must be those of its plan, in the order counts, "
                "logarithms, shares, with the threshold that the counts choose; got others."
            )
        if len({(one.size, one.published, one.sampler) for one in self.releases}) != 1:
            raise ReleaseError(
                "The releases of a composition must be of the same records, of one day and one "
                "source of noise; got several."
            )

    def _wanted(self) -> list[ReleasePlan]:
        """Return the plans that the releases must have, the threshold by the first of them."""
        if self.plan.thresholds and (
            not self.releases or self.releases[0].plan != self.plan.counts
        ):
            return []
        threshold = self.threshold
        logs = None if threshold is None else self.plan.logs(threshold)
        return [one for one in (self.plan.counts, logs, self.plan.shares) if one is not None]

    @property
    def counts(self) -> Release | None:
        """Return the noisy counts of smallest shares, where a threshold was chosen by them."""
        return self.releases[0] if self.plan.thresholds else None

    @property
    def logs(self) -> Release | None:
        """Return the noisy sums of logarithms of shares."""
        if self.plan.means == 1:
            return None
        return self.releases[1 if self.plan.thresholds else 0]

    @property
    def shares(self) -> Release | None:
        """Return the noisy sums of the shares themselves."""
        return self.releases[-1] if self.plan.means else None

    @property
    def threshold(self) -> float | None:
        """Return the threshold below which shares were censored before logarithms were taken."""
        counts = self.counts
        return self.plan.chosen(None if counts is None else counts.value)

    @property
    def parts(self) -> int:
        """Return how many shares a record has."""
        return self.plan.parts

    @property
    def size(self) -> int | None:
        """Return the number of records, where it is public: under replacement."""
        return self.releases[0].size

    @property
    def published(self) -> str:
        """Return the date."""
        return self.releases[0].published

    @property
    def simulated(self) -> bool:
        """Return whether the noise was seedable, so that this must not be published."""
        return self.releases[0].simulated

    def _sentences(self) -> list[str]:
        whose = "" if self.group is None else f" of {self.group}"
        return [
            f"{self.name}{whose}: {self.guarantee}, for all of it together.",
            f"Label: {self.label}.",
            *[f"Assumption: {assumption}" for assumption in self.assumptions],
            *[
                f"{one.name}: epsilon {level_of(one.guarantee):g}, noise of scale {one.scale:g}. "
                f"{one.sensitivity}"
                for one in self.releases
            ],
            *self._of_threshold(),
        ]

    def _of_threshold(self) -> list[str]:
        if self.threshold is None:
            return []
        how = "chosen by the noisy counts alone" if self.plan.thresholds else "fixed before"
        return [f"Threshold: shares below {self.threshold:g} count as {self.threshold:g}; {how}."]


@dataclass(frozen=True)
class GroupedComposition(Publication):
    """What was published of the shares of several groups, each person being in one of them.

    Parameters
    ----------
    groups : tuple of CompositionRelease
        Of one plan, each with the name of its group; ``published["name"]`` returns one.

    Raises
    ------
    ReleaseError
        By the constructor, if they are of several plans, or of one group twice.

    See Also
    --------
    release_composition : Makes one, with ``by=``.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release_composition(
    ...     [[0.2, 0.8], [0.5, 0.5]],
    ...     by=["m", "f"],
    ...     epsilon=0.5,
    ...     threshold=0.1,
    ...     neighbours="replace_one",
    ... )
    >>> published["f"].size, published.label
    (1, 'conditional')
    """

    groups: tuple[CompositionRelease, ...]

    def __post_init__(self) -> None:
        kinds = isinstance(self.groups, tuple) and all(
            isinstance(one, CompositionRelease) for one in self.groups
        )
        if not kinds or not self.groups or len({one.plan for one in self.groups}) != 1:
            raise ReleaseError("groups must be releases by one plan; got others, or none.")
        if not self.plan.grouped or len(set(self.names)) != len(self.names):
            raise ReleaseError("groups must have names, each its own; got others.")
        if len({(one.published, one.simulated) for one in self.groups}) != 1:
            raise ReleaseError("groups must be of one day and one source of noise; got several.")

    def __getitem__(self, group: Any) -> CompositionRelease:
        """Return what was published of one group."""
        for one in self.groups:
            if one.group == group_label(group):
                return one
        wanted = f"one of {', '.join(map(repr, self.names))}"
        raise refusal("A group", wanted, group, error=ReleaseError)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the groups."""
        return tuple(str(one.group) for one in self.groups)

    @property
    def plan(self) -> CompositionPlan:
        """Return the plan, which is the same for all groups."""
        return self.groups[0].plan

    @property
    def releases(self) -> tuple[Release, ...]:
        """Return the releases of all groups."""
        return tuple(release for one in self.groups for release in one.releases)

    @property
    def simulated(self) -> bool:
        """Return whether the noise was seedable, so that this must not be published."""
        return self.groups[0].simulated

    @property
    def published(self) -> str:
        """Return the date."""
        return self.groups[0].published

    def _sentences(self) -> list[str]:
        return [sentence for one in self.groups for sentence in one._sentences()]


def release_composition(
    shares: Any,
    *,
    epsilon: float,
    neighbours: str,
    threshold: float | None = None,
    thresholds: Sequence[float] | None = None,
    censored: float = 0.01,
    selection: float = 0.25,
    means: float = 0.0,
    by: Any = None,
    parts: int | None = None,
    unit: str = "one record",
    name: str = _NAME,
    ledger: Ledger | None = None,
) -> Any:
    """Publish sums over shares of a whole, with noise that keeps the promise.

    Sums of ``log max(x, threshold)`` carry what there is to know about the parameters of a
    Dirichlet law. A large threshold means little noise, and costs nothing where the model of the
    analyst knows of it, as `PrivatizedComposition` does; so fix one before, if you can. One of
    several `thresholds` can be chosen privately instead, by noisy counts of smallest shares, which
    are published, too. Questions about mean shares are answered better by sums of the shares
    themselves, whose sensitivity is 2.

    All is paid for with one charge, before any noise is drawn. Noise is exact and has no seed.
    Everything published but the noisy numbers, and the threshold that the noisy counts choose,
    follows from the arguments.

    Parameters
    ----------
    shares : array_like
        Shape (n, d), records on axis 0; not negative, and adding up to 1 in each row. Zeros are
        censored like all that is below the threshold. Each row is divided by its sum.
    epsilon : float
        Of everything together.
    neighbours : {"replace_one", "add_remove"}
    threshold : float, optional
        In (0, 1), public and chosen without looking at the records; or
    thresholds : sequence of float, optional
        increasing in (0, 1), 100 at most, of which one is chosen by `select_threshold`.
    censored : float
        The share of records that may be censored, for that choice.
    selection : float
        The share of epsilon that the choice takes, where there is one.
    means : float
        The share of epsilon that sums of the shares themselves take, before it is divided further:
        0 for none of them, 1 for nothing else.
    by : array_like, optional
        The group of each record, to which it belongs publicly: each group is published by itself,
        at the same epsilon, under its name, which is text or an integer. The label is conditional
        on that.
    parts : int, optional
        How many shares a record has, where there may be no records.
    unit : str
        What a record is, in the guarantee.
    name : str
        Of what is released; one that you give can be charged to a ledger once.
    ledger : Ledger, optional
        Charged once, before any noise is drawn; an overdraft is refused.

    Returns
    -------
    CompositionRelease or GroupedComposition
        With `by` the second, which has one of the first for each group.

    Raises
    ------
    ReleaseError
        If shares are not shares, or another argument is not what it must be.
    GuaranteeError
        If epsilon or neighbours are not what they must be, or the ledger is in another measure.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    PrivatizedComposition : Put it into a model.
    simulate_composition : Rehearse it with a seed.
    log_share_sensitivity : What the noise is calibrated by.
    write_card : Publish what was released.

    References
    ----------
    - Guo, Q., Barrientos, A. F. and Peña, V., "Differentially private inference for compositional
      data".

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> shares = np.array([[0.4, 0.05, 0.55], [0.35, 0.0, 0.65], [0.5, 0.1, 0.4]])
    >>> published = pmp.release_composition(
    ...     shares, epsilon=0.5, threshold=0.1, neighbours="replace_one", name="time use"
    ... )
    >>> published.guarantee.epsilon, round(published.logs.scale, 2)
    (0.5, 11.04)
    >>> chosen = pmp.release_composition(
    ...     shares, epsilon=0.5, thresholds=[0.001, 0.01, 0.1], neighbours="replace_one"
    ... )
    >>> chosen.counts.scale, chosen.threshold in (0.001, 0.01, 0.1)
    (16.0, True)
    """
    ledger = checked_ledger(ledger)
    plan = _planned(
        shares,
        promised(epsilon=epsilon, delta=None, rho=None, neighbours=neighbours, unit=unit),
        CompositionOptions(name, threshold, thresholds, censored, selection, means, by, parts),
    )
    charge(ledger, plan.plan.guarantee, plan.plan.name, unless=_NAME)
    return plan.published(ExactNoise(), "exact")


def simulate_composition(
    rng: np.random.Generator,
    shares: Any,
    *,
    epsilon: float,
    neighbours: str,
    threshold: float | None = None,
    thresholds: Sequence[float] | None = None,
    censored: float = 0.01,
    selection: float = 0.25,
    means: float = 0.0,
    by: Any = None,
    parts: int | None = None,
    unit: str = "one record",
    name: str = _NAME,
) -> Any:
    """Rehearse `release_composition` with seedable noise; the result must not be published.

    It has the same law, warns on every call, and its statement and its card say what it is.

    Parameters
    ----------
    rng : np.random.Generator
    shares, epsilon, neighbours, threshold, thresholds, censored, selection, means
        As for `release_composition`.
    by, parts, unit, name
        As for `release_composition`.

    Raises
    ------
    ReleaseError
        As for `release_composition`, and if `rng` is not a generator.
    GuaranteeError
        As for `release_composition`.

    See Also
    --------
    release_composition : What may be published.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> rng = np.random.default_rng(1)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     rehearsal = pmp.simulate_composition(
    ...         rng, rng.dirichlet([2, 3], 50), epsilon=1, threshold=0.1, neighbours="replace_one"
    ...     )
    >>> rehearsal.label
    'nominal'
    """
    generator("rng", rng, error=ReleaseError)
    plan = _planned(
        shares,
        promised(epsilon=epsilon, delta=None, rho=None, neighbours=neighbours, unit=unit),
        CompositionOptions(name, threshold, thresholds, censored, selection, means, by, parts),
    )
    warnings.warn(SIMULATED, InsecureNoiseWarning, stacklevel=2)
    return plan.published(SimulatedNoise(rng), "simulated")


@dataclass(frozen=True)
class CompositionOptions:
    """What a curator says about a composition, as it came."""

    name: Any
    threshold: Any
    thresholds: Any
    censored: Any
    selection: Any
    means: Any
    by: Any
    parts: Any


@dataclass(frozen=True)
class _Planned:
    """A plan and the records of each group, checked to fit: nothing can be refused any more."""

    plan: CompositionPlan
    tables: tuple[tuple[str | None, np.ndarray], ...]

    def published(self, noise: Noise, sampler: str) -> CompositionRelease | GroupedComposition:
        made = tuple(self._one(group, table, noise, sampler) for group, table in self.tables)
        return GroupedComposition(made) if self.plan.grouped else made[0]

    def _one(
        self, group: str | None, table: np.ndarray, noise: Noise, sampler: str
    ) -> CompositionRelease:
        plan, made = self.plan, []
        if plan.counts is not None:
            made.append(_published(noise, plan.counts, table, sampler))
        threshold = plan.chosen(made[0].value if made else None)
        if threshold is not None:
            made.append(_published(noise, plan.logs(threshold), table, sampler))
        if plan.shares is not None:
            made.append(_published(noise, plan.shares, table, sampler))
        # Midnight may pass between the parts.
        day = made[0].published
        return CompositionRelease(plan, tuple(replace(r, published=day) for r in made), group)


def _published(noise: Noise, plan: ReleasePlan, table: np.ndarray, sampler: str) -> Release:
    known: Any = plan.known
    return with_noise(noise, plan, plan.totals(known.of(table)), sampler)


def _planned(shares: Any, guarantee: Any, options: CompositionOptions) -> _Planned:
    """Make the plan of what is public, and only then look at the records."""
    plan = CompositionPlan(
        name=options.name,
        parts=_parts_of(shares, options.parts),
        guarantee=guarantee,
        threshold=options.threshold,
        thresholds=options.thresholds,
        censored=options.censored,
        selection=options.selection,
        means=options.means,
        grouped=options.by is not None,
    )
    table = whole_shares(rows("shares", shares, plan.parts))
    tables = by_group(table, options.by) if plan.grouped else ((None, table),)
    if guarantee.neighbours == "replace_one" and not all(len(one) for _, one in tables):
        raise ReleaseError(
            "shares must have a row or more, because neighbours replace one record; got none."
        )
    return _Planned(plan, tables)


def _parts_of(shares: Any, parts: Any) -> int:
    """Return the number of columns, which is public as the shape of a table is."""
    if parts is not None:
        return checked_parts(parts, ReleaseError)
    try:
        array = np.asarray(shares, dtype=object if isinstance(shares, list | tuple) else None)
        shape = array.shape
    except Exception:  # a ragged list, or a class of the caller's, which can raise anything
        shape = ()
    if len(shape) != 2 or shape[1] < 2:
        raise ReleaseError(
            "shares must be numbers of shape (n, d), one row per record with two shares or more; "
            "a list without records has no columns, and parts= says how many it would have; got "
            f"shape {shape}."
        )
    return int(shape[1])
