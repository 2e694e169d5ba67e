"""Poisson counts on a tree of totals, by sum-product: exact likelihood, means and draws.

A node is a leaf, which is a number, or a list of nodes; with it goes the log weight of each total
0, 1, ..., such as noise, bounds and exact totals have. The weight of a node's total is that of its
children's, convolved, times its own. Nothing of the library is used.
"""

from typing import NamedTuple

import numpy as np
from scipy import special


class Node(NamedTuple):
    """A leaf with its rate, or what several nodes add up to."""

    log_weight: np.ndarray
    rate: float | None = None
    children: tuple = ()


def upwards(node, tilted=None):
    """Return the weight of every total of a node, up to its last return value, a log.

    With ``tilted``, a leaf, its weights are times its count.
    """
    size = node.log_weight.size
    if node.rate is not None:
        counts = np.arange(size)
        log_f = special.xlogy(counts, node.rate) - node.rate - special.gammaln(counts + 1.0)
        weight, log_scale = np.exp(log_f), 0.0
        if node is tilted:
            weight = weight * counts
    else:
        weight, log_scale = np.eye(1, size)[0], 0.0
        for child in node.children:
            part, log_part = upwards(child, tilted)
            weight = np.convolve(weight, part)[:size]
            log_scale += log_part
    top = node.log_weight.max()
    weight = weight * np.exp(node.log_weight - top)
    # Nobody is in a leaf without a rate.
    total = weight.max() or 1.0
    return weight / total, log_scale + top + np.log(total)


def log_likelihood(root):
    """Return the log probability of all that is known."""
    weight, log_scale = upwards(root)
    return float(np.log(weight.sum()) + log_scale)


def leaves(node):
    """Return the leaves from left to right."""
    return [node] if node.rate is not None else [n for c in node.children for n in leaves(c)]


def means(root):
    """Return the mean of every leaf given all that is known."""
    log_z = log_likelihood(root)
    found = []
    for leaf in leaves(root):
        weight, log_scale = upwards(root, leaf)
        found.append(weight.sum() * np.exp(log_scale - log_z))
    return np.array(found)


def draw(rng, root):
    """Draw the leaves given all that is known, from the root down."""
    weight, _ = upwards(root)
    return np.array(_split(rng, root, rng.choice(weight.size, p=weight / weight.sum())))


def _split(rng, node, total):
    if node.rate is not None:
        return [total]
    parts = [upwards(child)[0] for child in node.children]
    drawn = []
    for k, child in enumerate(node.children):
        rest = np.eye(1, total + 1)[0]
        for part in parts[k + 1 :]:
            rest = np.convolve(rest, part)[: total + 1]
        weight = np.zeros(total + 1)
        own = parts[k][: total + 1]
        weight[: own.size] = own
        weight *= rest[::-1]
        count = rng.choice(total + 1, p=weight / weight.sum())
        drawn += _split(rng, child, count)
        total -= count
    return drawn
