"""Every method of the paper under one roof: from what was published to draws of alpha.

All of them see nothing but releases, so that their privacy is that of the releases: proven, by
post-processing. What differs is the inference, of which `METHODS` has a word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.papers.guo import bootstrap, chains, design, priors
from benchmarks.papers.guo.bank import Weighted, adapted, equally
from benchmarks.papers.guo.rejection import dpabc


class Method(NamedTuple):
    """What is said of a method: its privacy, and what its inference is."""

    privacy: str
    inference: str


METHODS = {
    "DPMCMC_p1": Method("proven", "exact, if the threshold is taken as fixed"),
    "counts and logs": Method("proven", "exact: the counts that chose the threshold are data, too"),
    "fixed 1e-06": Method("proven", "exact; all of epsilon on the logs, with the paper's noise"),
    "fixed 0.1": Method("proven", "exact; all of epsilon on the logs, with the paper's noise"),
    "fixed 0.1, exact sensitivity": Method("proven", "exact; what `release_composition` does"),
    "DPBoots": Method("proven", "approximate: noise is taken off blindly, censoring is not known"),
    "DPBoots, repaired": Method("proven", "approximate: noise is taken off blindly"),
    "DPreMCMC_p1, 5": Method("proven", "none: 5 pseudo-records and a ratio of another target"),
    "DPreMCMC_p1, n/5": Method("proven", "approximate: as many pseudo-records as a fifth"),
    "DPreMCMC_p1, equation (5)": Method("proven", "none: 5 pseudo-records, rightly sampled"),
    "DPABC_p1": Method("proven", "approximate: a tenth of the prior is accepted"),
    "DPABC_p2": Method("proven", "approximate: a tenth of the bootstrap is accepted"),
    "DPABC_p3": Method("proven", "approximate, as p2, with gamma margins"),
    "DPABC_p4": Method("proven", "approximate, as p3, with a Gaussian copula"),
    "DPABC_p5": Method("proven", "approximate: a tenth of a posterior is accepted"),
    "DPapprox_p1": Method("proven", "approximate: Normal sums, without censoring, no joint law"),
    "DPapprox_p3": Method("proven", "approximate, as p1, with the prior of a quarter"),
    "DPapprox_p4": Method("proven", "approximate, as p3, with a Gaussian copula"),
    "sums of shares": Method("proven", "exact; for means, with sensitivity 2"),
}


def of_whole(
    rng: np.random.Generator, published: design.Published, draws: int, *, five: bool = True
) -> dict[str, Weighted | None]:
    """Return what the methods make of one release of all records, but those of the bank.

    `five` says whether chains of five pseudo-records are run, too.
    """
    prior, size = priors.p1(len(published.value)), published.size
    run = {"draws": 3 * draws, "burn": draws}
    printed = bootstrap.dpboots(rng, published, draws)
    repaired = bootstrap.dpboots(rng, published, max(draws // 4, 100), repaired=True)
    few: dict[str, Weighted | None] = {}
    if five:
        for name, power in (("5", False), ("equation (5)", True)):
            drawn = chains.dpremcmc(rng, published, prior, pseudo=5, corrected=power, **run)
            few[f"DPreMCMC_p1, {name}"] = equally(drawn)
    many = chains.dpremcmc(rng, published, prior, pseudo=size // 5, corrected=False, **run)
    abc = dpabc(rng, published, prior.draw(rng, 10 * draws // 4))
    return {
        "DPBoots": printed and equally(printed.alphas),
        "DPBoots, repaired": repaired and equally(repaired.alphas),
        "DPreMCMC_p1, n/5": equally(many),
        "DPABC_p1": equally(abc),
        "DPapprox_p1": equally(chains.dpapprox(rng, published, prior, **run)),
        **few,
    }


def of_parts(
    rng: np.random.Generator,
    first: design.Published,
    second: design.Published,
    draws: int,
) -> dict[str, Weighted | None]:
    """Return what the methods make of releases of a quarter of the records and of the rest."""
    names = ["DPABC_p2", "DPABC_p3", "DPABC_p4", "DPapprox_p3", "DPapprox_p4"]
    simulations, run = 10 * draws // 4, {"draws": 3 * draws, "burn": draws}
    posterior = adapted(rng, first, draws=draws * 3)
    chosen = rng.choice(len(posterior.alphas), simulations, p=posterior.weights)
    found: dict[str, Weighted | None] = dict.fromkeys(names)
    found["DPABC_p5"] = equally(dpabc(rng, second, posterior.alphas[chosen]))
    boots = bootstrap.dpboots(rng, first, draws)
    if boots is None:
        return found
    p3, p4 = priors.p3(boots.alphas), priors.p4(boots.alphas)
    again = boots.alphas[rng.integers(len(boots.alphas), size=simulations)]
    found["DPABC_p2"] = equally(dpabc(rng, second, again))
    found["DPABC_p3"] = equally(dpabc(rng, second, p3.draw(rng, simulations)))
    found["DPABC_p4"] = equally(dpabc(rng, second, p4.draw(rng, simulations)))
    found["DPapprox_p3"] = equally(chains.dpapprox(rng, second, p3, **run))
    found["DPapprox_p4"] = equally(chains.dpapprox(rng, second, p4, **run))
    return found
