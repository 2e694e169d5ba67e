"""Points of a model at which what was made of it can be compared with the model itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_privacy._compat import AS_WRITTEN, Model, TensorVariable, compile_graph
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.model.sized_records import sizes_of
from pymc_privacy.model.start import start_of

Point = dict[str, np.ndarray]
Sampler = Callable[[np.random.Generator, Point], list[np.ndarray]]


@dataclass(frozen=True)
class Layout:
    """Some values of a point as one vector: their names and shapes."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def size(self) -> int:
        """Return the number of coordinates."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, point: Point) -> np.ndarray:
        """Return the values of a point as one vector."""
        if not self.names:
            return np.empty(0)
        return np.concatenate([np.ravel(point[name]) for name in self.names])

    def unflatten(self, vector: np.ndarray) -> Point:
        """Return the values of one vector by name."""
        parts, first = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            last = first + math.prod(shape)
            parts[name] = vector[first:last].reshape(shape)
            first = last
        return parts


def layout_of(point: Point, names: Sequence[str]) -> Layout:
    """Return how some values of a point are written as one vector."""
    return Layout(tuple(names), tuple(np.shape(point[name]) for name in names))


def refuse_other_shapes(layout: Layout, point: Point, step: str) -> None:
    """Refuse what another number of records has become of, by data that were set anew."""
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if point[name].shape != shape:
            raise RecordError(
                f"{name!r} must have the shape {shape}, because {step} was made for it; got "
                f"{point[name].shape}. Make the step method anew after setting data of another "
                "length."
            )


# How often a draw may fail, at parameters that their own prior does not exclude.
_TRIES = 8


def prior_points(model: Model, *, seed: int = 0) -> Iterator[Point]:
    """Draw points from the prior of a model, in value coordinates, one after the other.

    A variable that cannot be drawn, or came out infinite, is near where it would start. Random
    sizes are at their largest, so that all rows exist.
    """
    start = start_of(model)
    for point in _draws(model, start, np.random.default_rng(seed)):
        yield _with_all_rows(model, point)


def probing_point(model: Model) -> Point:
    """Return a point of the model where no parameter has a special value."""
    return next(prior_points(model))


def points_near_the_start(model: Model) -> list[Point]:
    """Return two points on either side of where the model starts, whatever its priors allow."""
    start = start_of(model)
    above = _near(start, np.random.default_rng(0))
    below = {
        name: 2 * value - above[name] if np.asarray(value).dtype.kind == "f" else value
        for name, value in start.items()
    }
    return [_with_all_rows(model, point) for point in (above, below)]


def conditional_sampler(model: Model, variables: Sequence[TensorVariable]) -> Sampler:
    """Compile a function of a generator and a point that draws variables given all others."""
    fresh = [in_value_coordinates(model, rv) for rv in variables]
    rng, fresh = with_generator(given_others(model, fresh, variables), write_out=False)
    draw = compile_graph([rng, *model.value_vars], fresh, on_unused_input="ignore", mode=AS_WRITTEN)

    def sample(generator: np.random.Generator, point: Point) -> list[np.ndarray]:
        try:
            return [np.array(value) for value in draw(generator, *point.values())]
        except IndexError as error:
            raise RecordError(looked_up_in_vain(error)) from error

    return sample


def looked_up_in_vain(error: IndexError) -> str:
    """Say that a model looks up what is not there, which machine code would not notice."""
    return (
        "Every value that variables can have must have a log density; but at a draw from the "
        f"prior something is looked up where there is nothing: {str(error).splitlines()[0]}."
    )


def _draws(model: Model, start: Point, rng: np.random.Generator) -> Iterator[Point]:
    free = list(model.free_RVs)
    names = [model.rvs_to_values[rv].name for rv in free]
    try:
        sampler = conditional_sampler(model, free)
        # Compiled without in-place updates, a sampler leaves its generator where it was, so
        # that each draw needs a generator of its own.
        sampler(rng.spawn(1)[0], start)
    except NotImplementedError:
        yield from _one_by_one(model, start, rng)
        return
    except RecordError:
        raise
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        pass
    failures = 0
    while failures < _TRIES:
        [child] = rng.spawn(1)
        try:
            drawn = dict(zip(names, sampler(child, start), strict=True))
        except RecordError:
            raise
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            failures += 1
            continue
        yield _finite(drawn, start, child)
    yield from _one_by_one(model, start, rng)


def _one_by_one(model: Model, start: Point, rng: np.random.Generator) -> Iterator[Point]:
    """Draw each variable given those before it, where it can be drawn."""
    samplers = {}
    for rv in model.free_RVs:
        try:
            samplers[model.rvs_to_values[rv].name] = sampler = conditional_sampler(model, [rv])
            sampler(rng.spawn(1)[0], start)
        except NotImplementedError:
            samplers.pop(model.rvs_to_values[rv].name, None)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            pass
    while True:
        [child] = rng.spawn(1)
        point = _near(start, child)
        for name, sampler in samplers.items():
            try:
                [value] = sampler(child.spawn(1)[0], point)
            except (ArithmeticError, ValueError, np.linalg.LinAlgError):
                continue
            point |= _finite({name: value}, {name: start[name]}, child)
        yield point


def _finite(drawn: Point, start: Point, rng: np.random.Generator) -> Point:
    """Return a draw in the types of a point of PyMC, with finite values."""
    near = _near(start, rng)
    point = {}
    for name, value in start.items():
        found = np.asarray(drawn.get(name, near[name]), dtype=value.dtype)
        point[name] = np.array(np.where(np.isfinite(found), found, near[name]), order="C")
    return point


def _near(start: Point, rng: np.random.Generator) -> Point:
    """Return a point where a coefficient that starts at zero does not hide what it multiplies."""
    return {
        name: np.asarray(
            value + rng.uniform(0.02, 0.1, np.shape(value)) * (1 + abs(value)), value.dtype
        )
        if np.asarray(value).dtype.kind == "f"
        else np.array(value)
        for name, value in start.items()
    }


def _with_all_rows(model: Model, point: Point) -> Point:
    sizes = {model.rvs_to_values[n].name: capacity for n, capacity in sizes_of(model).items()}
    return point | {
        name: np.asarray(capacity, point[name].dtype) for name, capacity in sizes.items()
    }
