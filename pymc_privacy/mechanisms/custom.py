"""A mechanism of the user's own: a log density written with PyTensor, and a simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import function, instance
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism


@dataclass(frozen=True, kw_only=True)
class CustomMechanism(Mechanism):
    """The release follows a log density that the user writes with PyTensor.

    The density must be complete: any factor that depends on the statistic belongs to it,
    a normalizer included. This is not checked.

    Parameters
    ----------
    log_density_function : callable
        ``function(release, statistic)`` of two tensors of the release's shape; returns the
        log density of the release, or one term per coordinate, which are then added.
    simulator : callable, optional
        ``function(rng, statistic) -> release`` with NumPy; needed for predictive draws.
    stated_guarantee : Guarantee, optional
        What is promised; taken on trust.

    Raises
    ------
    MechanismError
        By the constructor, if a function is none or the guarantee is none; and by `simulate`,
        without a simulator.

    See Also
    --------
    Laplace : A mechanism of the package.
    Privatized : What takes a mechanism.

    Examples
    --------
    Two-sided exponential-power noise, which this package does not bring along:

    >>> import numpy as np
    >>> from pymc_privacy import CustomMechanism
    >>> def log_density(release, statistic):
    ...     return -(abs(release - statistic) / 3.0) ** 1.5
    >>> CustomMechanism(log_density_function=log_density).log_density(4.0, 1.0).item()
    -1.0
    """

    discrete: ClassVar[bool] = False

    log_density_function: Callable[[Any, Any], Any]
    simulator: Callable[[np.random.Generator, np.ndarray], Any] | None = None
    stated_guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        function("log_density_function", self.log_density_function, error=MechanismError)
        if self.simulator is not None:
            function("simulator", self.simulator, error=MechanismError)
        if self.stated_guarantee is not None:
            wanted = "a guarantee such as PureDP(1.0)"
            stated = self.stated_guarantee
            instance("stated_guarantee", stated, Guarantee, wanted, error=MechanismError)

    @property
    def guarantee(self) -> Guarantee | None:
        """Repeat what the user stated."""
        return self.stated_guarantee

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Call the user's function; a tensor made from plain numbers is evaluated."""
        value = self.log_density_function(release, statistic)
        symbolic = hasattr(release, "owner") or hasattr(statistic, "owner")
        return value if symbolic else np.asarray(value.eval() if hasattr(value, "eval") else value)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Call the user's simulator."""
        if self.simulator is None:
            raise MechanismError(
                "Drawing a release needs a simulator, because the mechanism was given by its "
                "log density alone; pass simulator= to CustomMechanism."
            )
        return np.asarray(self.simulator(rng, np.asarray(statistic)))
