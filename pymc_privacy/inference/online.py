"""`online`: a posterior that takes in private answers one by one, and asks the next question."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np

from pymc_privacy._compat import Model, TensorVariable
from pymc_privacy.algorithms import ibis
from pymc_privacy.algorithms.query_design import SCORES
from pymc_privacy.algorithms.release_law import Answer, Answers, log_likelihood
from pymc_privacy.arguments import (
    choice,
    flag,
    instance,
    integer,
    positive,
    real,
    reals,
    refusal,
    shown,
)
from pymc_privacy.arguments import path as checked_path
from pymc_privacy.errors import StreamError
from pymc_privacy.inference.stream_journal import StreamJournal
from pymc_privacy.inference.stream_queries import Designer, Rule
from pymc_privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Laplace
from pymc_privacy.model.kept import KeptOnce
from pymc_privacy.results import stream_result
from pymc_privacy.sanitize.queries import BinnedQuery, ClippedQuery, Query
from pymc_privacy.targets.ibis import ParticleTarget, model_of

_MOST_SUMMED = 100_000  # values of a discrete record between the ends of an interval
_MOST_BINNED = 36.0  # epsilon at which randomized response is the truth, but for rounding
_FURTHEST = 1000.0  # scales that Laplace noise goes beyond with probability e^-1000
_FURTHEST_GAUSSIAN = 50.0  # where Gaussian noise is as improbable
_PRIOR, _UPDATE, _QUERY, _RESULT = range(4)  # what generators are for


def online(
    record: TensorVariable,
    *,
    epsilon: float,
    draws: int = 1000,
    queries: str | Rule = "binned",
    score: str = "a_optimal",
    memory: bool | None = None,
    thompson: bool = True,
    chains: int = 1,
    random_seed: int | None = None,
    path: Any = None,
    model: Model | None = None,
) -> Stream:
    """Open a stream of private answers from which the posterior of a model is learned.

    Users come one by one. Each is asked a query, and answers it once, by local differential
    privacy: nobody else sees the record. The posterior given all answers so far is held by
    particles, on the parameters alone: the record is integrated out of each answer. It says which
    query would tell most, and that is asked next.

    Parameters
    ----------
    record : TensorVariable
        One random variable of a PyMC model without data: the law of one record, with priors for its
        parameters. Of any law with a log density and a log cdf in PyMC. Of a vector one entry is
        asked for, a Normal vector or one of independent entries. Data of the model (`pm.Data`) may
        differ from user to user: say so in `Stream.query`.
    epsilon : float
        The privacy loss of each user, who answers once.
    draws : int, default 1000
        The number of particles of each cloud.
    queries : {"binned", "clipped"} or callable
        "binned" asks for a bin by randomized response, which tells more at the same epsilon;
        "clipped" for a clipped number plus Laplace noise, as published. Or a function of a
        generator and a dictionary of drawn parameters, which returns a query.
    score : {"a_optimal", "d_optimal", "first", "trace", "harmonic"}
        What is best, of the Fisher information F of an answer on the parameters: the smallest trace
        or determinant of its inverse; or the first entry, the trace or the harmonic score of the
        paper, which warns where it tells parameters apart badly.
    memory : bool, optional
        Whether the trace and determinant are those of F plus the precision that there is already.
        By default for clipped queries, of which no single one tells all. Queries to laws that are
        not of location and scale always do.
    thompson : bool, default True
        Whether the query is the best for parameters drawn from the posterior, which explores; else
        for their posterior mean.
    chains : int, default 1
        The number of clouds, each with particles of its own, on the same releases. Several give
        r_hat and the error of the evidence.
    random_seed : int, optional
    path : path, optional
        A folder in which every release is on disk before it is used. A stream that is opened there
        again goes on where it was, bit for bit, also after a crash at any moment.
    model : pm.Model, optional
        By default the one that the record is part of.

    Returns
    -------
    Stream

    Raises
    ------
    RecordError
        If the model has data, or several records, or no priors; or the law of the record has no log
        cdf.
    ArgumentError
        If an argument is not what it must be.
    StreamError
        If `path` is that of another stream.

    See Also
    --------
    BinnedQuery : What users are asked by default.
    ClippedQuery : The other kind.
    Privatized : With ``local=True``, for all releases at once.

    Notes
    -----
    The posterior is that given the releases and queries, whatever rule chose the queries. Its error
    is that of finitely many particles, and falls like 1 / sqrt(draws). In the ratio of densities of
    the whole transcript for two records of one user only the user's own answer is left: all users
    have the guarantee of the query that they answered.

    References
    ----------
    - Yıldırım, S. (2024), "Differentially private online Bayesian estimation with adaptive
      truncation", Turkish Journal of Electrical Engineering and Computer Sciences 32.
    - Chopin, N. (2002), "A sequential particle filter method for static models", Biometrika 89(3),
      539-551.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = pm.Normal("x", mu, 1)
    >>> stream = pmp.online(x, epsilon=2.0, draws=200, random_seed=1)
    >>> for record in np.random.default_rng(1).normal(3.0, 1.0, 50):
    ...     query = stream.query()
    ...     info = stream.update(query, query.release(record))
    >>> stream.size
    50
    >>> posterior = stream.result().posterior
    """
    positive("epsilon", epsilon, meaning="the privacy loss of each user")
    if not callable(queries):
        choice("queries", queries, ("binned", "clipped"), meaning="or a function that returns one")
    if queries == "binned" and epsilon > _MOST_BINNED:
        wanted = f'at most {_MOST_BINNED:g} for binned queries; queries="clipped" take any'
        raise refusal("epsilon", wanted, epsilon, meaning="bins are hardly noisy beyond")
    choice("score", score, SCORES)
    draws = integer("draws", draws, least=20, meaning="particles of each cloud")
    chains = integer("chains", chains, least=1, most=1000, meaning="clouds of particles")
    if memory is not None:
        flag("memory", memory)
    flag("thompson", thompson)
    seed = None if random_seed is None else integer("random_seed", random_seed, least=0)
    folder = None if path is None else checked_path("path", path)
    target = _target(model_of(record, model), record)
    designer = Designer(
        target,
        queries,
        epsilon=float(epsilon),
        score=score,
        memory=queries == "clipped" if memory is None else memory,
        thompson=thompson,
    )
    journal = None if folder is None else StreamJournal(folder)
    settings = {"epsilon": float(epsilon), "draws": draws, "chains": chains}
    return Stream(target, designer, settings=settings, seed=seed, journal=journal)


_compiled: KeptOnce[ParticleTarget] = KeptOnce()


def _target(model: Model, record: TensorVariable) -> ParticleTarget:
    """Return what is compiled of a model, once for as long as it consists of the same parts."""
    values = [*model.rvs_to_values.values(), *model.rvs_to_transforms.values()]
    parts = [model, record, *model.basic_RVs, *model.potentials, *model.deterministics, *values]
    target = _compiled.take(parts) or ParticleTarget(model, record)
    _compiled.keep(parts, target)
    return target


class Stream:
    """A posterior that grows with each release; made by `online`.

    It can be iterated over: every round is the next query. ``with`` closes its files.

    Raises
    ------
    StreamError
        By `update`, if a release cannot be the answer to its query.

    See Also
    --------
    online : Makes one.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     rate = pm.Gamma("rate", 2, 1)
    ...     x = pm.Poisson("x", rate)
    >>> stream = pmp.online(x, epsilon=1.0, draws=100, random_seed=1)
    >>> query = pmp.BinnedQuery(edges=[1, 3], epsilon=1.0)
    >>> info = stream.update(query, [0, 1, 1, 2])
    >>> stream.size
    4
    """

    def __init__(
        self,
        target: ParticleTarget,
        designer: Designer,
        *,
        settings: Mapping[str, Any],
        seed: int | None,
        journal: StreamJournal | None,
    ):
        self._target, self._designer, self._journal = target, designer, journal
        self._settings = dict(settings)
        self._answers = Answers(target.discrete)
        self._given: list[Answer] = []  # those on disk, of which the first few are taken in
        self._infos: list[list[ibis.Info]] = []
        self._asked, self._closed = 0, False
        self._seed = secrets.randbits(63) if seed is None else seed
        if journal is None:
            self._clouds = self._first_clouds()
            return
        try:
            self._resume(journal, seed)
        except BaseException:
            journal.close()
            raise

    # -- what users of it call --------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """Return the privacy loss of each user, by the queries that the stream asks."""
        return float(self._settings["epsilon"])

    @property
    def size(self) -> int:
        """Return how many releases are kept; whatever else was handed to `update` is not."""
        return len(self._given)

    @property
    def log_evidence(self) -> float:
        """Return the log probability of all releases under the model; the mean of all clouds."""
        logs = np.array([cloud.log_evidence for cloud in self._caught_up()])
        return float(np.logaddexp.reduce(logs) - np.log(len(logs)))

    def query(self, *, coordinate: int | None = None, **covariates: Any) -> Query:
        """Return what to ask next; any number may be asked before the first is answered.

        Parameters
        ----------
        coordinate : int, optional
            Which entry of a vector to ask for; in turn by default.
        **covariates
            What is publicly known of the user, by names of the model's data.
        """
        length = self._target.length
        if coordinate is None and length is not None:
            coordinate = (self.size + self._asked) % length
        clouds, rng = self._caught_up(), self._generator(_QUERY, self.size, self._asked)
        self._asked += 1
        return self._designer(rng, clouds, coordinate, covariates)

    def update(self, query: Query | Sequence[Query], release: Any) -> ibis.Info:
        """Take in a release, or several: of one query to many users, or of a list of queries.

        The order is free, and so is how queries were made. Every release is on disk, if the stream
        has a folder, before this uses it. If this is interrupted, `size` says how many are kept:
        they are taken in by whatever is called next, and need not be handed in again.

        Parameters
        ----------
        query : Query or sequence of Query
        release : number or sequence of numbers

        Returns
        -------
        Info
            Of the last release, the mean of all clouds: effective particles, growth of the log
            evidence, parts in which it was taken in, moves and their acceptance.
        """
        answers = self._checked(query, release)
        if self._journal is not None:
            self._journal.append([_line_of(answer) for answer in answers])
        self._given += answers
        self._asked = 0
        self._caught_up()
        return _mean_info(self._infos[-1])

    def result(self) -> Any:
        """Return the posterior so far, as a DataTree that ArviZ reads.

        ``posterior`` has equally weighted draws, one chain for each cloud; ``sample_stats`` what
        happened at each release; ``observed_data`` and ``constant_data`` releases and queries;
        ``privacy`` what is promised to the users.
        """
        draws = []
        for chain, cloud in enumerate(self._caught_up()):
            rng = self._generator(_RESULT, chain, self.size)
            chosen = ibis.resample(rng, ibis.weights_of(cloud), len(cloud.particles))
            # Neighbours would be copies of each other.
            draws.append(self._target.natural(cloud.particles[rng.permutation(chosen)]))
        values = {name: np.stack([one[name] for one in draws]) for name in draws[0]}
        statistics = {
            name: np.array([[getattr(info, name) for info in infos] for infos in self._infos])
            .reshape(self.size, len(self._clouds))
            .T
            for name in ibis.Info._fields
        }
        return stream_result(
            self._target.model,
            self._target.record,
            values,
            statistics,
            [(answer.query, answer.release) for answer in self._given],
            {
                "log_evidence": self.log_evidence,
                "log_evidence_error": self.log_evidence_error,
                "epsilon": self.epsilon,
            },
        )

    @property
    def log_evidence_error(self) -> float:
        """Return the standard error of the log evidence among clouds; nan of one cloud."""
        logs = np.array([cloud.log_evidence for cloud in self._caught_up()])
        if len(logs) < 2:
            return float("nan")
        relative = np.exp(logs - logs.max())
        return float(relative.std(ddof=1) / relative.mean() / np.sqrt(len(logs)))

    def close(self) -> None:
        """Keep the particles as they are, and give the folder free; update() is refused then."""
        if self._journal is None or self._closed:
            return
        self._closed = True
        try:
            self._caught_up()
            self._keep()
        finally:
            self._journal.close()

    def __iter__(self) -> Iterator[Query]:
        while True:
            yield self.query()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # -- clouds -----------------------------------------------------------------------------------

    def _generator(self, purpose: int, *place: int) -> np.random.Generator:
        """Return a generator that belongs to one place of the stream and to no other."""
        seed = np.random.SeedSequence(self._seed, spawn_key=(purpose, *place))
        return np.random.default_rng(seed)

    def _first_clouds(self) -> list[ibis.State]:
        clouds = []
        for chain in range(self._settings["chains"]):
            rng = self._generator(_PRIOR, chain)
            particles = self._target.draw_prior(rng, self._settings["draws"])
            clouds.append(ibis.init(particles, self._target.log_prior(particles)))
        return clouds

    @property
    def _taken(self) -> int:
        """Return how many releases the particles have taken in."""
        return self._clouds[0].size

    def _caught_up(self) -> list[ibis.State]:
        """Take in what is kept and was not taken in yet, and return all clouds.

        What an interrupted call has left behind is put right: the particles know how far they are.
        """
        moved = False
        while (taken := self._taken) < len(self._given):
            if self._answers.size != taken:
                self._answers = Answers(self._target.discrete, self._given[:taken])
            self._take_in(self._given[taken])
            moved |= any(info.moves for info in self._infos[taken])
        if moved and self._journal is not None:
            self._keep()
        return self._clouds

    def _take_in(self, answer: Answer) -> None:
        place = self._taken
        one = Answers(self._target.discrete, [answer])
        target = ibis.Target(
            before=lambda q: (
                self._target.log_prior(q) + log_likelihood(self._target, q, self._answers)
            ),
            release=lambda q: log_likelihood(self._target, q, one),
        )
        clouds, infos = [], []
        for chain, cloud in enumerate(self._clouds):
            rng = self._generator(_UPDATE, chain, place)
            moved, info = ibis.step(rng, cloud, target)
            clouds.append(moved)
            infos.append(info)
        self._infos[place:] = [infos]
        self._answers.add(answer)
        # Last, since it is what tells that the release is taken in.
        self._clouds = clouds

    # -- what comes in ----------------------------------------------------------------------------

    def _checked(self, query: Any, release: Any) -> list[Answer]:
        if isinstance(query, Query):
            said: Any = {"meaning": "what users have published", "error": StreamError}
            releases = reals("release", release, shapes=[(), ("k",)], **said)
            pairs = [(query, one) for one in releases.ravel().tolist()]
        else:
            try:
                pairs = list(zip(query, release, strict=True))
            except Exception:  # of a class of the caller's, which can raise anything
                raise StreamError(
                    "update() takes a query and a release, a query and many releases of it, or as "
                    f"many queries as releases; got {shown(query)} and {shown(release)}."
                ) from None
        if not pairs:
            raise StreamError("update() must be given one release or more; got none.")
        return [self._answer(one, released) for one, released in pairs]

    def _answer(self, query: Any, release: Any) -> Answer:
        instance("query", query, Query, "a ClippedQuery or a BinnedQuery", error=StreamError)
        user = self._target.user(query.coordinate, dict(query.covariates))
        said: Any = {"meaning": "what a user has published", "error": StreamError}
        if isinstance(query, BinnedQuery):
            whole = release
            if isinstance(release, float | np.floating) and float(release).is_integer():
                whole = int(release)
            bins = query.categories - 1
            said["meaning"] = f"which of {bins + 1} bins a user has published"
            return Answer(query, integer("release", whole, least=0, most=bins, **said), user)
        clipped = cast(ClippedQuery, query)
        number = real("release", release, **said)
        _refuse_absurd(clipped, number)
        if isinstance(clipped.mechanism, DiscreteLaplace | DiscreteGaussian):
            if not self._target.discrete:
                raise StreamError(
                    "Integer noise is for records that are integers; got "
                    f"{clipped.mechanism!r} for {self._target.record.name}, which are not."
                )
            if not number.is_integer():
                wanted = "a whole number, since whole noise was added to a whole number"
                raise refusal("release", wanted, release, error=StreamError)
        if self._target.discrete and clipped.width > _MOST_SUMMED:
            raise StreamError(
                f"The interval of a query to a discrete record must have at most {_MOST_SUMMED} "
                f"values, which are summed over; got width {clipped.width:g}. Ask a BinnedQuery."
            )
        return Answer(query, number, user)

    # -- what is on disk --------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        return {
            "stream": str(self._target.record.name),
            "parameters": [str(rv.name) for rv in self._target.parameters],
            **self._settings,
            "model": self._target.signature(),
            "seed": self._seed,
        }

    def _resume(self, journal: StreamJournal, seed: int | None) -> None:
        first, lines = journal.open()
        if first is not None:
            own = first.get("seed")
            self._seed = own if seed is None and isinstance(own, int) else self._seed
            self._refuse_unless_same(journal, first)
        else:
            journal.begin(self._identity())
        answers = [self._read(journal, line) for line in lines]
        kept = journal.kept() if first is not None else None
        self._given = answers
        if kept is not None:
            self._restore(journal, kept)
        else:
            self._clouds = self._first_clouds()
            self._keep()
        self._caught_up()

    def _refuse_unless_same(self, journal: StreamJournal, first: Mapping[str, Any]) -> None:
        for name, value in self._identity().items():
            there = first.get(name)
            same = there == value if name != "model" else _close(there, value)
            if not same:
                raise StreamError(
                    "A stream must be opened again with the model and the arguments that it was "
                    f"begun with; {journal.folder} has {name}={shown(there)}, got {shown(value)}."
                )

    def _read(self, journal: StreamJournal, line: Mapping[str, Any]) -> Answer:
        try:
            query = Query.from_json(json.dumps(line["query"]))
            return self._answer(query, line["release"])
        except (KeyError, ValueError) as error:
            raise StreamError(
                f"Every line in {journal.folder} must be a query and its release; got "
                f"{shown(line)} ({error})."
            ) from None

    def _keep(self) -> None:
        assert self._journal is not None
        clouds = {
            name: np.array([getattr(cloud, name) for cloud in self._clouds])
            for name in ibis.State._fields
        }
        infos = np.array(self._infos[: self._taken], dtype=float).reshape(
            self._taken, len(self._clouds), len(ibis.Info._fields)
        )
        self._journal.keep(clouds | {"infos": infos})

    def _restore(self, journal: StreamJournal, kept: Mapping[str, np.ndarray]) -> None:
        """Put particles back, with what they know."""
        size = int(kept["size"][0])
        if size > self.size:
            raise StreamError(
                f"The particles in {journal.folder} must not know more releases than are on file; "
                f"they have taken in {size}, and there are {self.size}."
            )
        self._clouds = [
            ibis.State(
                kept["particles"][k],
                kept["log_weights"][k],
                kept["log_posterior"][k],
                float(kept["log_evidence"][k]),
                size,
            )
            for k in range(self._settings["chains"])
        ]
        self._infos = [[_info_of(row) for row in rows] for rows in kept["infos"]]


def _refuse_absurd(query: ClippedQuery, release: float) -> None:
    """Refuse what no user can have published: taken in, it would drown what all others did."""
    exponential = isinstance(query.mechanism, Laplace | DiscreteLaplace)
    most = _FURTHEST if exponential else _FURTHEST_GAUSSIAN
    nearest = min(max(release, query.lower), query.upper)
    if abs(release - nearest) > most * float(cast(float, query.mechanism.scale)):
        raise StreamError(
            f"release must be at most {most:g} scales of the noise away from the query's interval, "
            f"beyond which noise never is (its probability is below e^-1000); got {release!r} "
            f"for {query!r}."
        )


def _close(numbers: Any, others: Sequence[float]) -> bool:
    """Return whether two lists agree up to what another machine rounds."""
    return np.shape(numbers) == np.shape(others) and np.allclose(numbers, others, rtol=1e-9)


def _line_of(answer: Answer) -> dict[str, Any]:
    return {"query": json.loads(answer.query.to_json()), "release": answer.release}


def _info_of(row: np.ndarray) -> ibis.Info:
    ess, increment, parts, moves, accept = map(float, row)
    return ibis.Info(ess, increment, int(parts), int(moves), accept)


def _mean_info(infos: Sequence[ibis.Info]) -> ibis.Info:
    if len(infos) == 1:
        return infos[0]
    return ibis.Info(*(np.mean(column).item() for column in zip(*infos, strict=True)))
