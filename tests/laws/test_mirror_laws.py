"""Laws of mirror maps on points of one small pytree, for every mirror map.

A row has a mirror map, its domain, and its strong convexity. Laws are functions of flat float64
vectors; a row caches its compiled functions. That ``to_primal`` beats every other point by the
divergence fixes it, so that soft thresholds and changes of variables have no tests.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hypothesis_numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax.flatten_util import ravel_pytree

from fcojax import transforms, tree
from fcojax.check import piece_laws
from tests.support.tables import with_gate

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 2))}
SIZE = 5


def to_tree(flat):
    return ravel_pytree(TREE)[1](flat)


def divergence(mirror, u, v):
    """Return Bregman's h(u) - h(v) - <grad h(v), u - v>."""
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A mirror map and its traits.

    Attributes:
      mirror: the map under test.
      convexity: ``(u, v) -> m/2 |u - v|^2``, for the strong convexity m that the docstring states.
      inside: ``(flat point, scale) -> flat point`` in the interior of the domain of h.
      feasible: ``(flat point, scale) -> flat point`` where psi is finite too.
      dual: ``(flat point) -> flat dual point`` where P_t is defined.
    """

    mirror: transforms.Mirror
    convexity: Callable
    inside: Callable = lambda x, scale: x
    feasible: Callable | None = None
    dual: Callable = lambda z: z

    @functools.cached_property
    def compiled(self) -> Any:
        flat = {
            name: jax.jit(lambda x, *rest, f=f: ravel_pytree(f(to_tree(x), *rest))[0])
            for name, f in self.mirror._asdict().items()
            if name.startswith(("to", "from"))
        }
        value = jax.jit(lambda x, scale: self.mirror.penalty.value(to_tree(x), scale))
        potential = jax.jit(lambda x: self.mirror.potential(to_tree(x)))
        gap = jax.jit(lambda u, v: divergence(self.mirror, to_tree(u), to_tree(v)))

        def read(z, step, scale, weights):
            return jnp.vdot(weights, flat["to_primal"](z, step, scale))

        more = {
            "value": value,
            "potential": potential,
            "divergence": gap,
            "gradient": jax.jit(jax.grad(lambda x: self.mirror.potential(to_tree(x)))),
            "slopes": jax.jit(jax.grad(read, argnums=(0, 1, 2))),
        }
        return flat | more

    def __call__(self, name, *arguments):
        answer = self.compiled[name](*(jnp.asarray(a, float) for a in arguments))
        return jax.tree.map(np.asarray, answer)

    def objective(self, x, z, step, scale):
        return self("potential", x) + step * self("value", x, scale) - np.vdot(z, x)

    def member(self, x, scale):
        return (self.feasible or self.inside)(x, scale)


# Laws on random examples, functions of ``(row, u, v, w, step, scale)``.


def to_primal_beats_every_other_point(row, u, v, w, step, scale):
    """Other points are worse by at least the divergence, as proofs of mirror descent need."""
    z = row.dual(u)
    best = row("to_primal", z, step, scale)
    least = row.objective(best, z, step, scale)
    assert np.isfinite(least)
    room = 1e-9 * (1.0 + abs(least) + np.vdot(z, z) + np.vdot(best, best))
    for other in (row.member(v, scale), row.member(w, scale), row.member(best + 1e-2 * v, scale)):
        rival = row.objective(other, z, step, scale)
        assert least + row("divergence", other, best) <= rival + room + 1e-9 * abs(rival)


def divergence_is_as_convex_as_stated(row, u, v, w, step, scale):
    del w, step
    u, v = row.inside(u, scale), row.inside(v, scale)
    room = 1e-10 * (1.0 + abs(row("potential", u)) + abs(row("potential", v)))
    assert row("divergence", u, v) >= row.convexity(u, v) - room
    assert abs(row("divergence", u, u)) <= room


LAWS = (to_primal_beats_every_other_point, divergence_is_as_convex_as_stated)


# Laws on fixed examples, functions of ``(row)``.


def generic(seed):
    return 2.0 * np.random.default_rng(seed).normal(size=SIZE)


def laws_of_check_hold(row):
    found = piece_laws(row.mirror, TREE)
    assert not [finding for finding in found.values() if finding.holds is False]


def slopes_match_finite_differences(row):
    width = 1e-6
    z, weights, direction = row.dual(generic(0)), generic(1), generic(2)

    def read(z, step, scale):
        return np.vdot(weights, row("to_primal", z, step, scale))

    by_z, by_step, by_scale = row("slopes", z, 0.7, 0.6, weights)
    rises = (
        read(z + width * direction, 0.7, 0.6) - read(z - width * direction, 0.7, 0.6),
        read(z, 0.7 + width, 0.6) - read(z, 0.7 - width, 0.6),
        read(z, 0.7, 0.6 + width) - read(z, 0.7, 0.6 - width),
    )
    for slope, rise in zip((np.vdot(by_z, direction), by_step, by_scale), rises, strict=True):
        rise = rise / (2 * width)
        assert abs(slope - rise) <= 1e-6 * (1 + abs(rise))


def degenerate_inputs_are_finite(row):
    for x in (np.zeros(SIZE), np.ones(SIZE), np.eye(SIZE)[0], 1e-300 * generic(3)):
        assert np.all(np.isfinite(row("to_dual", x)))
        assert np.all(np.isfinite(row("gradient", x)))
        for step in (0.0, 0.5):
            for scale in (0.0, 0.6):
                z = row.dual(x)
                assert np.all(np.isfinite(row("to_primal", z, step, scale)))
                for slope in row("slopes", z, step, scale, generic(4)):
                    assert np.all(np.isfinite(slope))


FIXED_LAWS = [
    slopes_match_finite_differences,
    degenerate_inputs_are_finite,
    laws_of_check_hold,
]


WEIGHTS = np.array([2.0, 0.5, 1.0, 4.0, 1.5])
GRAM = np.cov(np.random.default_rng(0).normal(size=(SIZE, 40))) + np.diag(WEIGHTS)


def positive(x, scale):
    del scale
    return np.abs(x) + 0.05


def on_simplex(x, scale):
    return scale * positive(x, scale) / np.sum(positive(x, scale))


def half_square(norm, constant=1.0):
    return lambda u, v: 0.5 * constant * norm(u - v) ** 2


def l1_norm(x):
    return np.sum(np.abs(x))


def p_norm_row(p):
    return Row(transforms.p_norm(p), half_square(functools.partial(np.linalg.norm, ord=p), p - 1.0))


def diagonal_row(penalty, **traits):
    weights = to_tree(WEIGHTS)
    norm = half_square(lambda x: np.sqrt(np.sum(WEIGHTS * x**2)))
    return Row(transforms.diagonal(weights, penalty), norm, **traits)


def largest_sum(u, v):
    return max(l1_norm(u), l1_norm(v))


MIRRORS = {
    "euclidean l1": Row(transforms.euclidean(transforms.l1()), half_square(np.linalg.norm)),
    "diagonal zero": diagonal_row(transforms.zero()),
    "diagonal l1": diagonal_row(transforms.l1()),
    "diagonal l2_squared": diagonal_row(transforms.l2_squared()),
    "diagonal box": diagonal_row(
        transforms.box(-0.5, 1.5), feasible=lambda x, scale: np.clip(x, -0.5, 1.5)
    ),
    "diagonal, one weight": Row(
        transforms.diagonal(3.0, transforms.l1()), half_square(np.linalg.norm, 3.0)
    ),
    "quadratic": Row(
        transforms.quadratic(jnp.asarray(GRAM)), lambda u, v: 0.5 * (u - v) @ GRAM @ (u - v)
    ),
    "p_norm 1.1": p_norm_row(1.1),
    "p_norm 1.5": p_norm_row(1.5),
    "p_norm 2": p_norm_row(2.0),
    "entropy": Row(
        transforms.entropy(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=positive,
    ),
    "entropic_simplex": Row(
        transforms.entropic_simplex(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=on_simplex,
    ),
}

# The gate runs every law on one row of each kind.
REPRESENTATIVES = {"euclidean l1", "diagonal box", "p_norm 1.5", "entropy"}

points = hypothesis_numpy.arrays(
    np.float64, SIZE, elements=st.floats(-4.0, 4.0, width=16, allow_subnormal=False)
)
numbers = st.floats(0.0625, 4.0, width=16)
many = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", with_gate(MIRRORS, REPRESENTATIVES))
@pytest.mark.parametrize("law", LAWS)
@many
@given(points, points, points, numbers, numbers)
def test_law(law, name, u, v, w, step, scale):
    law(MIRRORS[name], u, v, w, step, scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", with_gate(MIRRORS, REPRESENTATIVES))
@pytest.mark.parametrize("law", FIXED_LAWS)
def test_fixed_law(law, name):
    law(MIRRORS[name])


@pytest.mark.parametrize("name", ["diagonal box", "quadratic", "p_norm 1.5", "entropic_simplex"])
def test_laws_at_one_point_by_default(name):
    for law in LAWS:
        law(MIRRORS[name], generic(5), generic(6), generic(7), 0.7, 0.6)


# Identities of single mirror maps.


def test_no_finite_dual_point_of_the_simplex_overflows():
    z = np.array([1e300, 1e300, -1e300, 0.0, 5.0])
    found = MIRRORS["entropic_simplex"]("to_primal", z, 1.0, 2.0)
    assert found.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
