"""What maximum likelihood has found, and what follows from it: intervals, profiles."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.ascent import Settings, Step
from pymc_privacy.arguments import choice, integer, probability, text
from pymc_privacy.errors import ArgumentError, ComparisonWarning
from pymc_privacy.inference import profiling, resampling
from pymc_privacy.results import labelled_intervals

Bounds = dict[str, tuple[np.ndarray, np.ndarray]]

_WALD = (
    "A release is one observation, however many records are behind it: that estimates are Normal "
    "with the precision of the information is an approximation, often a poor one. The default, "
    'method="bootstrap", does without it.'
)


class Start(NamedTuple):
    """One start of a fit, and where it has come to."""

    initial: dict[str, np.ndarray]
    estimate: dict[str, np.ndarray]
    maximum: int
    """Which of the fit's maxima."""
    log_likelihood: float
    distance: float
    sweeps: int


class Maximum(NamedTuple):
    """A maximum of the likelihood that some start has come to."""

    estimate: dict[str, np.ndarray]
    log_likelihood: float
    log_likelihood_error: float
    distance: float


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """The parameters at which releases are most likely, and how well that is known.

    Returned by `maximum_likelihood`; not made by hand.

    Attributes
    ----------
    estimate : xarray.Dataset
        On the natural scale, as the model writes the parameters.
    log_likelihood, log_likelihood_error : float
        Of the releases alone, over all databases; and its Monte Carlo error.
    converged : bool
        Whether the distance is within the tolerance, or within twice its own error.
    distance, distance_error : float
        How far the maximum still is, in standard errors, and the Monte Carlo error of that.
    at_boundary : tuple of str
        Parameters toward whose bound, or toward infinity, the likelihood does not fall.
    unidentified : tuple of str
        Parameters that can be moved either way without a fall of the likelihood; their estimate
        is nan.
    level : tuple of str
        Parameters in which starts ended apart while the likelihood between them is level.
    starts : tuple of Start
        Each start and where it has come to.
    maxima : tuple of Maximum
        All different places that starts have come to.
    information : ndarray
        The inverse of the variance of estimates over releases, to first order, in the coordinates
        without bounds that ``coordinates`` names.
    """

    estimate: Any
    log_likelihood: float
    log_likelihood_error: float
    converged: bool
    distance: float
    distance_error: float
    at_boundary: tuple[str, ...]
    unidentified: tuple[str, ...]
    level: tuple[str, ...]
    starts: tuple[Start, ...]
    maxima: tuple[Maximum, ...]
    information: np.ndarray
    coordinates: tuple[str, ...]
    method: str
    penalty: str | None
    sweeps: int
    seconds: float
    path: tuple[tuple[Step, ...], ...] = field(repr=False)
    q: np.ndarray = field(repr=False)
    settings: Settings = field(repr=False)
    fitting: Any = field(repr=False)
    _replicates: dict[str, Any] = field(default_factory=dict, repr=False)

    def bootstrap(
        self,
        replicates: int = 200,
        *,
        executor: Executor | None = None,
        random_seed: int = 0,
        path: Any = None,
        progressbar: bool = False,
    ) -> Any:
        """Simulate releases from the fitted model, and fit each of them from the estimate.

        Parameters
        ----------
        replicates : int, default 200
        executor : concurrent.futures.Executor, optional
            Where to run, as for `Study.run`; in this process by default. Each process compiles
            the model once.
        random_seed : int, default 0
        path : path_like, optional
            A file for the replicates, with which a bootstrap that was stopped goes on.
        progressbar : bool, default False

        Returns
        -------
        xarray.Dataset
            The estimates, with a dimension ``replicate``.
        """
        replicates = integer("replicates", replicates, least=2)
        found = resampling.bootstrap(
            self,
            replicates,
            executor=executor,
            seed=integer("random_seed", random_seed, least=0),
            path=path,
            progressbar=progressbar,
        )
        self._replicates["coordinates"] = found
        return resampling.labelled_replicates(self, found)

    def interval(
        self, prob: float = 0.95, *, method: str = "bootstrap", var_names: Any = None
    ) -> Any:
        """Return confidence intervals of the parameters.

        Parameters
        ----------
        prob : float, default 0.95
        method : {"bootstrap", "profile", "wald"}
            ``"bootstrap"`` takes the percentiles of the estimates of `bootstrap`, and makes 200
            replicates where there are none yet; a parameter at the boundary, or of which the
            releases say nothing, has none, and its bounds are nan. ``"profile"`` takes all values
            of one parameter whose profile log likelihood is within half a chi-square quantile of
            the maximum, and ``"wald"`` the estimate and its standard error by the information:
            both are large-sample methods, and a release is one observation.
        var_names : str or sequence of str, optional

        Returns
        -------
        xarray.Dataset
            With a dimension ``bound``, of ``lower`` and ``upper``.
        """
        prob = probability("prob", prob)
        methods = ("bootstrap", "profile", "wald")
        method = choice("method", method, methods, meaning="of intervals", error=ArgumentError)
        names = _names(self, var_names)
        if method == "bootstrap":
            if "coordinates" not in self._replicates:
                self.bootstrap()
            found = resampling.percentiles(self, self._replicates["coordinates"], prob)
            found |= self._without_percentiles(found)
        elif method == "profile":
            found = profiling.intervals(self, prob, names)
        else:
            warnings.warn(_WALD, ComparisonWarning, stacklevel=2)
            found = self._wald(prob)
        return labelled_intervals(
            self.fitting.problem.user_model, {name: found[name] for name in names}
        )

    def _without_percentiles(self, found: Bounds) -> Bounds:
        """Return bounds that are no numbers, for what was not estimated in replicates."""
        aside = [*self.at_boundary, *self.unidentified]
        names = {name for name in found if any(one.partition("[")[0] == name for one in aside)}
        if names:
            warnings.warn(
                f"A bootstrap says nothing about {', '.join(sorted(names))}: the likelihood does "
                'not fall one way or both. See method="profile" for bounds of what is at the '
                "boundary.",
                ComparisonWarning,
                stacklevel=3,
            )
        return {
            name: (np.full_like(found[name][0], np.nan), np.full_like(found[name][1], np.nan))
            for name in names
        }

    def _wald(self, prob: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return estimates and quantiles by the information, in coordinates without bounds."""
        z = NormalDist().inv_cdf((1 + prob) / 2)
        covariance = np.linalg.pinv(self.information, hermitian=True)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        natural = self.fitting.problem.natural
        ends = [natural(self.q + side * z * deviation) for side in (-1, 1)]
        return {
            name: (
                np.minimum(ends[0][name], ends[1][name]),
                np.maximum(ends[0][name], ends[1][name]),
            )
            for name in ends[0]
        }

    def profile(self, name: str, grid: Any = None, *, random_seed: int = 0) -> Any:
        """Maximise over all other parameters at each value of one.

        Parameters
        ----------
        name : str
            A parameter that is a number, or one coordinate of a vector, as ``"beta[1]"``.
        grid : array_like, optional
            Its values, on the natural scale; by default 11 of them, three standard errors about
            the estimate.
        random_seed : int, default 0

        Returns
        -------
        Profile
            With ``grid``, ``log_likelihood`` and ``error``, and ``others``, the estimates of the
            other parameters. The log likelihood is the integral of the score along the profile.
        """
        name = text("name", name)
        return profiling.profile(
            self, name, grid, seed=integer("random_seed", random_seed, least=0)
        )

    def sentences(self) -> list[str]:
        """Say what was found, in sentences."""
        told = []
        kind = "posterior mode, on the natural scale" if self.penalty else "maximum likelihood"
        which = {"score": "by its score", "em": "by EM", "saem": "by SAEM"}[self.method]
        if self.converged:
            how = f"{self.distance:.3f} ± {self.distance_error:.3f} standard errors from it"
            told.append(f"The {kind}, found {which} ({how}).")
        else:
            told.append(
                f"The {kind} was not reached {which}: it is {self.distance:.2f} ± "
                f"{self.distance_error:.2f} standard errors away. Give more max_sweeps."
            )
        if self.at_boundary:
            told.append(
                f"At the boundary: {', '.join(self.at_boundary)}. The likelihood does not fall "
                "that way, however far one goes."
            )
        if self.unidentified:
            told.append(f"These releases do not identify {', '.join(self.unidentified)}.")
        if self.level:
            told.append(
                f"The likelihood is level: starts ended at different {', '.join(self.level)}, and "
                "none of these is more likely than the others. One of them is returned."
            )
        if len(self.maxima) > 1:
            values = ", ".join(f"{m.log_likelihood:.2f}" for m in self.maxima)
            told.append(f"Starts came to {len(self.maxima)} places, of log likelihood {values}.")
        return told

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for name, value in self.estimate.data_vars.items():
            numbers = np.array2string(np.asarray(value.values), precision=4, separator=", ")
            rows.append((str(name), numbers))
        rows.append(
            (
                "log likelihood",
                f"{self.log_likelihood:.3f} ± {self.log_likelihood_error:.3f}",
            )
        )
        return rows

    def __repr__(self) -> str:
        lines = self.sentences()
        width = max(len(name) for name, _ in self._rows())
        lines += [f"  {name:<{width}}  {value}" for name, value in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        told = "".join(f"<p>{html.escape(line)}</p>" for line in self.sentences())
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td><pre>{html.escape(value)}</pre></td></tr>"
            for name, value in self._rows()
        )
        return f"<div>{told}<table>{rows}</table></div>"


def _names(fit: LikelihoodFit, var_names: Any) -> Sequence[str]:
    """Return the parameters that are asked for."""
    known = [str(name) for name in fit.estimate.data_vars]
    wanted = known if var_names is None else list(np.atleast_1d(var_names))
    strangers = [str(name) for name in wanted if name not in known]
    if strangers:
        raise ArgumentError(
            f"var_names must be parameters of the model, {', '.join(known)}; got "
            f"{', '.join(strangers)}."
        )
    return [str(name) for name in wanted]
