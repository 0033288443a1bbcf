"""Laws of penalties, mirrors, manifolds, samplers and compressors, to check your own.

A law returns by how much it is violated, or ``None`` where it does not apply; its docstring says
what holds, and then what to do where it does not. ``tests/laws`` has more laws, over more points,
for the pieces of the library.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Sampler, tree
from fcojax.arguments import validated
from fcojax.check import compressors
from fcojax.check.subject import PIECES, Finding, located
from fcojax.transforms import Manifold, Mirror, Penalty
from fcojax.types import PyTree
from fcojax.uploads import Compressor

_TOLERANCE = 1e-7  # relative; proxes that iterate are exact to about 1e-9
_NUMBERS = ((0.7, 0.6), (2.0, 0.3), (0.05, 1.5))  # steps and strengths
_CLIENTS, _ROUNDS = 10, 600

Points = tuple[PyTree, ...]


@validated
def piece_laws(piece: Any, like: PyTree = None) -> dict[str, Finding]:
    """Return for each law of a piece's kind whether it holds, in double precision.

    Args:
      piece: a penalty, mirror map, manifold, sampler or compressor.
      like: a point with the shapes that the piece is for; by default eight numbers, and 64 for a
        compressor, whose stated error is compared with 4,000 draws.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> from fcojax.transforms import Penalty
      >>> wrong = Penalty(
      ...     value=lambda x, scale: scale * jnp.sum(x**2),  # its prox lacks a factor of 2
      ...     prox=lambda v, step, scale: v / (1 + step * scale))
      >>> found = fcojax.check.piece_laws(wrong)
      >>> [name for name, finding in found.items() if finding.holds is False]
      ['prox']
    """
    kind = next((kind for kind in PIECES if isinstance(piece, kind)), None)
    if kind is None:
        known = ", ".join(kind.__name__ for kind in PIECES)
        raise ValueError(f"the piece is a {type(piece).__name__}; pass one of {known}.")
    if like is None:
        like = np.zeros(64 if kind is Compressor else 8)
    with jax.enable_x64(True):
        if isinstance(piece, Compressor):
            return compressors.laws_of(piece, np.size(like))
        rng = np.random.default_rng(0)
        points = tuple(
            jax.tree.map(lambda leaf: jnp.asarray(2 * rng.normal(size=np.shape(leaf))), like)
            for _ in range(4)
        )
        given = piece if kind is Sampler else _compiled(piece), points
        return {name: _judged(law, *given) for name, law in LAWS_OF_PIECES[kind].items()}


def _compiled(piece: Any) -> Any:
    """Return a tuple with its functions compiled: an eager one may compile at every call."""
    if isinstance(piece, Penalty | Mirror | Manifold):
        return type(piece)(*map(_compiled, piece))
    return jax.jit(piece) if callable(piece) else piece


def _judged(law: Callable, piece: Any, points: Points) -> Finding:
    sentence, *remedy = inspect.cleandoc(str(law.__doc__)).rstrip(".").split(".\n\n")
    try:
        off = law(piece, points)
    except Exception as error:  # code of the user may raise anything
        advice = "; pass the shape that the piece is for, as in --shape=4,3"
        return Finding(False, located(error) + advice * ("shape" in str(error)))
    if off is None:
        return Finding(None, f"does not apply: {sentence}")
    if float(off) <= _TOLERANCE:  # false for NaN
        return Finding(True, sentence)
    found = ". ".join([f"violated by {float(off):.2g}: {sentence}", *remedy])
    return Finding(False, found.replace("\n", " "))


def _gap(found: PyTree, expected: PyTree) -> float:
    """Return the distance of two trees relative to the second's norm, or to 1."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    if any(jnp.shape(a) != jnp.shape(b) for a, b in pairs):
        return np.inf
    off = jax.tree.map(lambda a, b: jnp.asarray(a, float) - jnp.asarray(b, float), found, expected)
    return float(tree.norm(off) / jnp.maximum(1.0, tree.norm(tree.floats(expected))))


def _narrow(function: Callable, *points: PyTree) -> float:
    """Return by how much a compiled function's float32 results are wrong, beyond rounding."""
    found = jax.jit(function)(*jax.tree.map(jnp.float32, points))
    if any(leaf.dtype != jnp.float32 for leaf in jax.tree.leaves(found)):
        return np.inf
    return _gap(found, function(*points)) - 1e-4


# Penalties.


def _prox(psi: Penalty, points: Points) -> float:
    """No point has a smaller step * psi(x) + |x - v|^2 / 2 than prox(v)."""

    def objective(x, v, step, scale):
        return step * psi.value(x, scale) + 0.5 * tree.norm(tree.sub(x, v)) ** 2

    return _above_least(psi.prox, objective, points, anywhere=True)


def _above_least(solve: Callable, objective: Callable, points: Points, *, anywhere: bool) -> float:
    """Return by how much ``solve(z, step, scale)`` is not the least of the objective."""
    worst = -np.inf
    for step, scale in _NUMBERS:
        inside = [solve(z, step, scale) for z in points]  # in the set of an indicator
        for z, best in zip(points, inside, strict=True):
            least = objective(best, z, step, scale)
            near = [tree.add_scaled(best, 1e-2, tree.sub(x, best)) for x in inside + [z] * anywhere]
            others = [*inside, *near, *([*points, tree.zeros_like(z)] if anywhere else [])]
            rises = [(least - objective(x, z, step, scale)) / (1 + abs(least)) for x in others]
            worst = max(worst, *map(float, rises)) if np.isfinite(float(least)) else np.inf
    return worst


def _nonexpansive(psi: Penalty, points: Points) -> float | None:
    """The prox of a convex psi moves no two points apart.

    If psi is not convex, say Penalty(convex=False).
    """
    if not psi.convex:
        return None
    v, w, *_ = points
    moves = [tree.sub(psi.prox(v, *n), psi.prox(w, *n)) for n in _NUMBERS]
    return max(float(tree.norm(m) / tree.norm(tree.sub(v, w))) for m in moves) - 1


def _separable(psi: Penalty, points: Points) -> float | None:
    """The prox of a separable psi takes a step for each entry.

    If psi is no sum over entries, leave separable=True out.
    """
    if not psi.separable:
        return None
    v, w, *_ = points
    steps = jax.tree.map(lambda leaf: jnp.where(leaf > 0, 0.3, 1.2), w)
    low, high = (psi.prox(v, step, 0.6) for step in (0.3, 1.2))
    chosen = jax.tree.map(lambda leaf, a, b: jnp.where(leaf > 0, a, b), w, low, high)
    return _gap(psi.prox(v, steps, 0.6), chosen)


def _scale_max(psi: Penalty, points: Points) -> float | None:
    """From scale_max(gradient) on, and not below, the prox of -gradient is zero."""
    if psi.scale_max is None:
        return None
    largest, down = psi.scale_max(points[0]), tree.scale(-1.0, points[0])
    at, below = (psi.prox(down, 1.0, share * largest) for share in (1.0 + 1e-9, 0.9))
    return float(tree.norm(at)) if float(tree.norm(below)) > 0 else np.inf


def _subdifferential(psi: Penalty, points: Points) -> float | None:
    """(v - prox(v)) / step is in the subdifferential at prox(v)."""
    if psi.subdiff_distance is None:
        return None
    v, (step, scale) = points[0], _NUMBERS[0]
    best = psi.prox(v, step, scale)
    return float(psi.subdiff_distance(best, tree.scale(1 / step, tree.sub(v, best)), scale))


def _penalty_dtype(psi: Penalty, points: Points) -> float:
    """The prox compiles, and keeps float32.

    Keep the dtype, as jnp.zeros_like and jnp.asarray(number, v.dtype) do.
    """
    return _narrow(lambda v: psi.prox(v, *_NUMBERS[0]), points[0])


# Mirror maps. Points of the domain are those that dual points are mapped to.


def _gradient(mirror: Mirror, points: Points) -> float:
    """to_dual is the gradient of the potential."""
    x = mirror.from_dual(points[0])
    return _gap(mirror.to_dual(x), jax.grad(mirror.potential)(x))


def _inverse(mirror: Mirror, points: Points) -> float:
    """from_dual inverts to_dual."""
    x = mirror.from_dual(points[0])
    return _gap(mirror.from_dual(mirror.to_dual(x)), x)


def _mirror_step(mirror: Mirror, points: Points) -> float:
    """No point has a smaller h(x) + step * psi(x) - <z, x> than to_primal(z)."""

    def objective(x, z, step, scale):
        psi = step * mirror.penalty.value(x, scale)
        return mirror.potential(x) + psi - tree.vdot(z, x)

    return _above_least(mirror.to_primal, objective, points, anywhere=False)


def _mirror_dtype(mirror: Mirror, points: Points) -> float:
    """to_primal compiles, and keeps float32.

    Keep the dtype, as jnp.zeros_like and jnp.asarray(number, v.dtype) do.
    """
    return _narrow(lambda z: mirror.to_primal(z, *_NUMBERS[0]), points[0])


# Manifolds.


def _on(manifold: Manifold, points: Points) -> PyTree:
    return manifold.random_point(points[0], jax.random.key(0))


def _projection(manifold: Manifold, points: Points) -> float:
    """Projected, random and retracted points stay where they are when they are projected."""
    x = _on(manifold, points)
    tangent = manifold.to_tangent(x, points[1])
    # Within the reach, in which the nearest point is unique.
    small = min(0.1, manifold.reach / 4) / (1 + float(tree.norm(tangent)))
    near = manifold.project(tree.add_scaled(x, small, points[2]))
    on = [x, near, manifold.retract(x, tree.scale(small, tangent))]
    return max(_gap(manifold.project(y), y) for y in on)


def _tangent(manifold: Manifold, points: Points) -> float:
    """to_tangent is an orthogonal projection: idempotent, and self-adjoint."""
    x, (u, v, *_) = _on(manifold, points), points
    metric = manifold.metric or (lambda x, w: w)
    flat = [manifold.to_tangent(x, w) for w in (u, v)]
    sides = tree.vdot(flat[0], metric(x, v)), tree.vdot(metric(x, u), flat[1])
    return max(_gap(manifold.to_tangent(x, flat[0]), flat[0]), _gap(*sides))


def _retraction(manifold: Manifold, points: Points) -> float:
    """retract(x, u) is x + u, up to the square of u."""
    x = _on(manifold, points)
    u = manifold.to_tangent(x, points[1])
    u = tree.scale(1 / (1 + tree.norm(u)), u)
    errors = [
        float(tree.norm(tree.sub(manifold.retract(x, tree.scale(t, u)), tree.add_scaled(x, t, u))))
        for t in (1e-3, 1e-4)
    ]
    return errors[1] - errors[0] / 50  # a hundredth, with room for the next order


def _inverses(manifold: Manifold, points: Points) -> float | None:
    """inverse_retract inverts retract, and log inverts exp, near the point."""
    x = _on(manifold, points)
    u = manifold.to_tangent(x, points[1])
    u = tree.scale(0.01 / (1 + tree.norm(u)), u)
    pairs = (manifold.inverse_retract, manifold.retract), (manifold.log, manifold.exp)
    known = [(back, forth) for back, forth in pairs if back and forth]
    return max((_gap(back(x, forth(x, u)), u) for back, forth in known), default=None)


# Samplers.


def _cohort(sampler: Sampler, points: Points) -> float:
    """Members are distinct clients, and there are size(M) places, compiled or not."""
    key, size = jax.random.key(0), sampler.size(_CLIENTS)
    sizes, draw = jnp.arange(1, _CLIENTS + 1), jax.jit(sampler.draw, static_argnums=2)
    for index in range(20):
        one, two = (d(key, jnp.int32(index), _CLIENTS, sizes) for d in (sampler.draw, draw))
        members = np.asarray(one.indices)[np.asarray(one.present)]
        fits = one.present.shape == one.indices.shape == (size,)
        known = members.size == np.unique(members).size and np.all(
            (members >= 0) & (members < _CLIENTS)
        )
        same = all(
            np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True)
        )
        if not (fits and known and same and (sampler.can_be_absent or one.present.all())):
            return np.inf
    return 0.0


def _mean_size(sampler: Sampler, points: Points) -> float:
    """mean_size is the mean number of participants, by which noisy sums are divided.

    Define mean_size(num_clients), the mean number of places that are present, which is
    size(num_clients) by default.
    """
    return max(_mean_off(sampler, number) for number in (_CLIENTS, _CLIENTS + 1))


def _mean_off(sampler: Sampler, num_clients: int) -> float:
    sizes = jnp.arange(1, num_clients + 1)

    def present(index):
        return jnp.sum(sampler.draw(jax.random.key(1), index, num_clients, sizes).present)

    counts = np.asarray(jax.jit(jax.vmap(present))(jnp.arange(_ROUNDS, dtype=jnp.int32)))
    # Rounds may depend on one another: blocks of thirty tell the error of their mean.
    error = 6 * counts.reshape(-1, 30).mean(axis=1).std() / np.sqrt(_ROUNDS / 30)
    return abs(counts.mean() - sampler.mean_size(num_clients)) - error


def _hashed(sampler: Sampler, points: Points) -> float:
    """An equal sampler has the same hash, so that its programs are compiled once.

    Make it a frozen dataclass of numbers and tuples.
    """
    copy = type(sampler)(**vars(sampler)) if hasattr(sampler, "__dataclass_fields__") else sampler
    return 0.0 if hash(copy) == hash(sampler) and copy == sampler else np.inf


LAWS_OF_PIECES: dict[type, dict[str, Callable]] = {
    Penalty: {
        "prox": _prox,
        "nonexpansive": _nonexpansive,
        "steps of entries": _separable,
        "scale_max": _scale_max,
        "subdifferential": _subdifferential,
        "dtype": _penalty_dtype,
    },
    Mirror: {
        "gradient": _gradient,
        "inverse": _inverse,
        "mirror step": _mirror_step,
        "dtype": _mirror_dtype,
    },
    Manifold: {
        "projection": _projection,
        "tangent": _tangent,
        "retraction": _retraction,
        "inverses": _inverses,
    },
    Sampler: {"cohort": _cohort, "mean size": _mean_size, "hash": _hashed},
}
