"""A query names what one user publishes of one record: a contribution, a mechanism, a promise.

Under local privacy a server asks, and each user answers for one record, with noise of its own. All
of a query is public: it was made before the record was looked at, so that the only thing which
depends on the record is the release. For every rule by which queries follow from earlier releases
the whole transcript keeps the promise of each single query to each user: in the ratio of its
densities for two records of one user all factors cancel but that user's own.
"""

from __future__ import annotations

import json
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import numpy as np

from pymc_privacy.accounting import Guarantee, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import (
    generator,
    instance,
    integer,
    positive,
    real,
    reals,
    refusal,
    text,
)
from pymc_privacy.errors import PrivacyError, ReleaseError
from pymc_privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    RandomizedResponse,
)
from pymc_privacy.sanitize.calibrate import exactly
from pymc_privacy.sanitize.exact_noise import ExactNoise, RandBelow, bernoulli_exp
from pymc_privacy.sanitize.plan import ReleasePlan, plan_release
from pymc_privacy.sanitize.releases import with_noise
from pymc_privacy.sanitize.rows import entries

Noise = Laplace | Gaussian | DiscreteLaplace | DiscreteGaussian
Covariates = tuple[tuple[str, Any], ...]
_LAWS: dict[str, type[Noise]] = {
    law.__name__: law for law in (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)
}
_PURE, _WHOLE = (Laplace, DiscreteLaplace), (DiscreteLaplace, DiscreteGaussian)
_MOST_EDGES = 2**16


class Query(ABC):
    """What one user is asked to publish of one record, and what that promises.

    A query is a value: two with the same numbers are equal, and none can be changed. Everything of
    it is public.

    Raises
    ------
    ReleaseError
        By `from_json`, if the line is none that `to_json` has written.

    See Also
    --------
    BinnedQuery : Asks for a bin, by randomized response.
    ClippedQuery : Asks for a clipped number plus noise.
    online : Asks one user after the other.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> line = pmp.BinnedQuery(edges=[0.0], epsilon=1.0).to_json()
    >>> line
    '{"query": "binned", "edges": [0.0], "epsilon": 1.0}'
    >>> pmp.Query.from_json(line)
    BinnedQuery(edges=(0.0,), epsilon=1.0)
    """

    mechanism: Any
    coordinate: int | None
    covariates: Any

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised to the user, whose presence is public: another record looks alike."""

    @abstractmethod
    def contribution(self, record: Any) -> Any:
        """Return what the mechanism acts on, of a record or of an array of them."""

    @abstractmethod
    def release(self, record: Any) -> Any:
        """Publish the answer of a record, with exact noise from the operating system's entropy."""

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return what is particular to this kind of query, as JSON has it."""

    def simulate(self, rng: np.random.Generator, record: Any) -> Any:
        """Draw an answer from a seedable generator: for studies, never for publishing."""
        drawn = self.mechanism.simulate(generator("rng", rng), self.contribution(record))
        return drawn.item() if np.ndim(drawn) == 0 else drawn

    def to_json(self) -> str:
        """Return the query as a line of JSON, for a phone or a browser on the other side."""
        common = {"coordinate": self.coordinate, "covariates": _lists(dict(self.covariates))}
        common = {name: value for name, value in common.items() if value not in (None, {})}
        return json.dumps({"query": _KINDS[type(self)], **self._fields(), **common})

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a query; that of another kind is refused, but by `Query`, which reads them all."""
        wanted = "a line of JSON, as to_json() of a query has written it"
        try:
            found = json.loads(line)
            kind = {name: kind for kind, name in _KINDS.items()}[found.pop("query")]
            made = kind._read(found)
        except PrivacyError:
            raise
        except Exception:  # of whatever came over the wire
            raise refusal("line", wanted, line, error=ReleaseError) from None
        if not isinstance(made, cls):
            wanted = f"that of a {cls.__name__}, and Query.from_json reads every kind"
            raise refusal("line", wanted, line, error=ReleaseError)
        return made

    @classmethod
    @abstractmethod
    def _read(cls, found: dict[str, Any]) -> Query:
        """Make a query of what JSON had of it."""

    def _settle(self) -> None:
        """Store what all queries have in plain form, so that equal queries are equal."""
        if self.coordinate is not None:
            meaning = "which entry of a vector of records is asked for"
            said: Any = {"least": 0, "meaning": meaning, "error": ReleaseError}
            object.__setattr__(self, "coordinate", integer("coordinate", self.coordinate, **said))
        object.__setattr__(self, "covariates", _covariates(self.covariates))

    def _entry(self, record: Any) -> np.ndarray:
        """Return the entry that is asked for, of one record or of one in each row."""
        values = entries("record", record)
        if self.coordinate is None:
            if values.ndim > 1:
                raise ReleaseError(
                    "record must be one number, or one for each of several records; got shape "
                    f"{values.shape}. Say which entry of a vector is asked for, with coordinate=."
                )
            return values
        values = np.atleast_1d(values)
        if values.ndim > 2 or self.coordinate >= values.shape[-1]:
            raise ReleaseError(
                f"A record must have an entry {self.coordinate}, for which the query asks; got "
                f"shape {values.shape}."
            )
        return values[..., self.coordinate]

    def _spelled(self) -> str:
        """Return the constructor's call, without what was left out."""
        given = {one.name: getattr(self, one.name) for one in fields(cast(Any, self))}
        shown = [f"{k}={v!r}" for k, v in given.items() if v not in (None, ())]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class ClippedQuery(Query):
    """The user publishes the record, clipped to an interval, plus noise.

    Parameters
    ----------
    lower, upper : float
        Finite, with lower < upper. The contribution is the record, clipped to them.
    mechanism : Laplace, Gaussian, DiscreteLaplace or DiscreteGaussian, optional
        The noise; integer noise for records and bounds that are whole. A sensitivity that it
        states must not be below upper - lower.
    epsilon : float, optional
        Instead of a mechanism: Laplace noise of scale (upper - lower) / epsilon.
    coordinate : int, optional
        Which entry of a record is asked for, where records are vectors.
    covariates : mapping of str to float, optional
        What is publicly known of the user, by the names of the model's data.

    Raises
    ------
    ReleaseError
        If bounds are no interval, or if not one of mechanism and epsilon is given, or the
        mechanism's sensitivity is below the width of the interval.

    See Also
    --------
    BinnedQuery : Tells more of the record for the same epsilon.
    online : Asks such queries, each chosen after the answers so far.

    References
    ----------
    - Yıldırım, S. (2024), "Differentially private online Bayesian estimation with adaptive
      truncation", Turkish Journal of Electrical Engineering and Computer Sciences 32.
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> query = pmp.ClippedQuery(lower=-1.0, upper=3.0, epsilon=2.0)
    >>> query.contribution(7.5), query.mechanism.scale
    (3.0, 2.0)
    >>> print(query.guarantee)
    2-DP (pure), neighbours: replace one record, unit: one record
    >>> pmp.ClippedQuery.from_json(query.to_json()) == query
    True
    >>> released = query.release(7.5)
    """

    lower: float
    upper: float
    mechanism: Noise = None  # type: ignore[assignment]
    epsilon: float | None = None
    coordinate: int | None = None
    covariates: Any = ()

    def __post_init__(self) -> None:
        said: Any = {"meaning": "an end of the interval", "error": ReleaseError}
        object.__setattr__(self, "lower", real("lower", self.lower, **said))
        object.__setattr__(self, "upper", real("upper", self.upper, **said))
        if not 0 < self.width < np.inf:
            raise ReleaseError(
                "lower must be below upper, a finite distance away (records are clipped to what is "
                f"between them); got lower={self.lower!r} and upper={self.upper!r}."
            )
        self._settle()
        if self.mechanism is None or self.epsilon is not None:
            said["meaning"] = "the privacy loss of the user; or give mechanism="
            object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, **said))
        if self.mechanism is None:
            laplace = Laplace(
                epsilon=self.epsilon, sensitivity=self.width, neighbours="replace_one"
            )
            object.__setattr__(self, "mechanism", laplace)
        else:
            object.__setattr__(self, "mechanism", self._fitted(self.mechanism))
        promised = getattr(self.guarantee, "epsilon", None)
        if self.epsilon is not None and not math.isclose(
            promised or 0.0, self.epsilon, rel_tol=1e-9
        ):
            raise ReleaseError(
                "A query needs mechanism= or epsilon=, one of the two, because each follows from "
                f"the other; got epsilon={self.epsilon!r} and a mechanism that promises "
                f"{self.guarantee}."
            )
        object.__setattr__(self, "epsilon", promised)

    @property
    def width(self) -> float:
        """Return upper - lower, by which another record moves the contribution at most."""
        return self.upper - self.lower

    @property
    def guarantee(self) -> PureDP | ZeroConcentratedDP:
        """What is promised to the user: a scale s of noise on an interval of width w.

        Laplace noise promises w / s. Gaussian noise promises rho = (w / s)² / 2 whatever it was
        calibrated by: that is what is proved of Gaussian noise on a lattice, which is what
        `release` draws.
        """
        scale = float(cast(float, self.mechanism.scale))
        if not isinstance(self.mechanism, _PURE):
            return ZeroConcentratedDP((self.width / scale) ** 2 / 2, neighbours="replace_one")
        own = self.mechanism
        exact = own.epsilon is not None and own.sensitivity == self.width
        epsilon = cast(float, own.epsilon) if exact else self.width / scale
        return PureDP(epsilon, neighbours="replace_one")

    def contribution(self, record: Any) -> Any:
        """Return a record, clipped to the interval; under integer noise rounded, too."""
        clipped = np.clip(self._entry(record), self.lower, self.upper)
        if isinstance(self.mechanism, _WHOLE):
            clipped = np.rint(clipped).astype(np.int64)
        return clipped.item() if clipped.ndim == 0 else clipped

    def release(self, record: Any) -> Any:
        """Publish a clipped record with exact noise on a lattice, from the system's entropy.

        There is no seed. Lattice and scale follow from the query alone; a release is an integer
        multiple of a power of two, and the noise is an exact draw on the integers. How long that
        takes depends on the noise, though not on the record.
        """
        plan, whole = self._plan, isinstance(self.mechanism, _WHOLE)
        entry = self._entry(record)
        made = [
            with_noise(ExactNoise(), plan, plan.totals([one], size=1), "exact").value
            for one in entry.ravel().tolist()
        ]
        values = np.array(made, dtype=np.int64 if whole else np.float64).reshape(entry.shape)
        return values.item() if values.ndim == 0 else values

    @property
    def _plan(self) -> ReleasePlan:
        """Return how a clipped record is published; it has not seen the record."""
        promise = self.guarantee
        level: Any = (
            {"epsilon": promise.epsilon} if isinstance(promise, PureDP) else {"rho": promise.rho}
        )
        return plan_release(
            bounds=(self.lower, self.upper),
            neighbours="replace_one",
            integers=isinstance(self.mechanism, _WHOLE),
            **level,
        )

    def _fitted(self, mechanism: Any) -> Noise:
        """Return a mechanism that states a sensitivity and the neighbours."""
        names = "Laplace, Gaussian, DiscreteLaplace or DiscreteGaussian noise"
        instance("mechanism", mechanism, tuple(_LAWS.values()), names, error=ReleaseError)
        if np.ndim(mechanism.scale) > 0 or mechanism.neighbours == "add_remove":
            raise ReleaseError(
                "The mechanism of a query must have one scale, since one number is released, and "
                'neighbours "replace_one", since the presence of a user is public; got '
                f"{mechanism!r}."
            )
        stated = mechanism.sensitivity
        if stated is not None and stated < self.width * (1 - 1e-9):
            raise ReleaseError(
                "The sensitivity of a query's mechanism must be upper - lower or more, by which "
                f"another record moves the contribution; got {stated!r}, which is below "
                f"{self.width!r}."
            )
        whole = self.lower == np.rint(self.lower) and self.upper == np.rint(self.upper)
        if isinstance(mechanism, _WHOLE) and not whole:
            raise ReleaseError(
                "lower and upper must be whole numbers under integer noise, which is added to "
                f"integers; got {self.lower!r} and {self.upper!r}."
            )
        sensitivity = self.width if stated is None else stated
        return replace(mechanism, sensitivity=sensitivity, neighbours="replace_one")

    def _fields(self) -> dict[str, Any]:
        given = {one.name: getattr(self.mechanism, one.name) for one in fields(self.mechanism)}
        law = {name: value for name, value in given.items() if value is not None}
        law.pop("neighbours")
        if set(law) - {"scale", "sensitivity"}:
            law.pop("scale")  # it follows from the others
        mechanism = {"name": type(self.mechanism).__name__, **law}
        return {"lower": self.lower, "upper": self.upper, "mechanism": mechanism}

    @classmethod
    def _read(cls, found: dict[str, Any]) -> ClippedQuery:
        law = dict(found.pop("mechanism"))
        return ClippedQuery(mechanism=_LAWS[law.pop("name")](**law), **found)

    def __repr__(self) -> str:
        return self._spelled()


@dataclass(frozen=True, kw_only=True, repr=False)
class BinnedQuery(Query):
    """The user publishes in which bin the record is, or by chance one of the other bins.

    The bin is the number of edges that are not above the record: with k - 1 edges one of
    0, ..., k - 1. It is published by k-ary randomized response.

    Parameters
    ----------
    edges : sequence of float
        Finite and increasing; one or more.
    epsilon : float
        The privacy loss of the user.
    coordinate : int, optional
        Which entry of a record is asked for, where records are vectors.
    covariates : mapping of str to float, optional
        What is publicly known of the user, by the names of the model's data.

    Raises
    ------
    ReleaseError
        If edges are not increasing finite numbers.
    MechanismError
        If epsilon is not a finite number > 0, or so large that the release tells everything.

    See Also
    --------
    ClippedQuery : A number plus noise.
    RandomizedResponse : The mechanism.
    online : Asks such queries, each chosen after the answers so far.

    References
    ----------
    - Kairouz, P., Bonawitz, K. and Ramage, D. (2016), "Discrete distribution estimation under local
      privacy", International Conference on Machine Learning (ICML).
    - Kalinin, N. P. and Steinberger, L. (2024), "Efficient estimation of a Gaussian mean with local
      differential privacy", arXiv:2402.04840.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> query = pmp.BinnedQuery(edges=[-1.0, 1.0], epsilon=1.0)
    >>> query.contribution([-3.0, 1.0, 5.0]).tolist()
    [0, 2, 2]
    >>> print(query.guarantee)
    1-DP (pure), neighbours: replace one record, unit: one record
    >>> query.release(0.3) in (0, 1, 2)
    True
    """

    edges: tuple[float, ...]
    epsilon: float
    coordinate: int | None = None
    covariates: Any = ()

    def __post_init__(self) -> None:
        wanted = "finite numbers, each above the one before"
        said: Any = {"meaning": "between them are the bins", "wanted": wanted}
        edges = reals("edges", self.edges, shapes=[(), ("k",)], error=ReleaseError, **said).ravel()
        if not 0 < edges.size <= _MOST_EDGES or np.any(np.diff(edges) <= 0):
            raise refusal("edges", value=self.edges, error=ReleaseError, **said)
        object.__setattr__(self, "edges", tuple(edges.tolist()))
        self._settle()
        mechanism = RandomizedResponse(epsilon=self.epsilon, categories=self.categories)
        object.__setattr__(self, "epsilon", mechanism.epsilon)

    @property
    def categories(self) -> int:
        """Return the number of bins."""
        return len(self.edges) + 1

    @property
    def mechanism(self) -> RandomizedResponse:
        """Return the randomized response by which the bin is published."""
        return RandomizedResponse(epsilon=self.epsilon, categories=self.categories)

    @property
    def guarantee(self) -> PureDP:
        """What is promised to the user."""
        return PureDP(self.epsilon, neighbours="replace_one")

    def contribution(self, record: Any) -> Any:
        """Return the number of edges that are not above a record."""
        bins = np.searchsorted(self.edges, self._entry(record), side="right")
        return int(bins) if np.ndim(bins) == 0 else bins

    def release(self, record: Any) -> Any:
        """Publish a bin by exact randomized response, from the system's entropy.

        There is no seed, and no rounding: all decisions are comparisons of integers. How many it
        takes does not depend on the record; it does on the noise, so that the time at which an
        answer is published must be fixed beforehand where others could measure it.
        """
        bins = np.asarray(self.contribution(record))
        made = [
            respond(secrets.randbelow, truth, self.categories, self.epsilon)
            for truth in bins.ravel().tolist()
        ]
        values = np.array(made, dtype=np.int64).reshape(bins.shape)
        return values.item() if values.ndim == 0 else values

    def _fields(self) -> dict[str, Any]:
        return {"edges": list(self.edges), "epsilon": self.epsilon}

    @classmethod
    def _read(cls, found: dict[str, Any]) -> BinnedQuery:
        return BinnedQuery(**found)

    def __repr__(self) -> str:
        return self._spelled()


_KINDS: dict[type[Query], str] = {ClippedQuery: "clipped", BinnedQuery: "binned"}


def respond(randbelow: RandBelow, truth: int, categories: int, epsilon: float) -> int:
    """Draw the truth with weight 1 and each other answer with weight exp(-epsilon), exactly.

    An answer is proposed evenly, and kept with its weight. A proposal is kept with the same
    probability whatever the truth is, and so the number of proposals tells nothing of it.
    """
    exponent = exactly(epsilon)
    while True:
        answer = randbelow(categories)
        kept = bernoulli_exp(randbelow, exponent.numerator, exponent.denominator)
        if answer == truth or kept:
            return answer


def _covariates(given: Any) -> Covariates:
    """Return pairs of a name and numbers, in the order of the names."""
    wanted = "a mapping of names of the model's data to numbers"
    try:
        if not isinstance(given, Mapping | tuple):
            raise TypeError
        pairs = sorted(dict(given).items())
    except Exception:  # of a class of the caller's, which can raise anything
        raise refusal("covariates", wanted, given, error=ReleaseError) from None
    return tuple((text("covariates", name, wanted=wanted), _plain(name, v)) for name, v in pairs)


def _plain(name: str, value: Any) -> Any:
    return _tuples(reals(name, value, meaning="what is known of the user", error=ReleaseError))


def _tuples(array: np.ndarray) -> Any:
    return array.item() if array.ndim == 0 else tuple(map(_tuples, array))


def _lists(covariates: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in covariates.items()}
