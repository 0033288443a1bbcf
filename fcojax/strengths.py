"""A model for each strength of a penalty, with warm starts, as one compiled program."""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Plan, kkt, local_steps, tree
from fcojax.algorithms import Algorithm, Work, fed_mid_osp
from fcojax.arguments import checked_value, shown, validated
from fcojax.engine.hparams import as_arrays
from fcojax.engine.optimality import pooled_gradient
from fcojax.engine.plan import Program, as_plan
from fcojax.engine.solve import Outcome, solve_traced
from fcojax.engine.validation import as_params, require_run
from fcojax.memo import jit_per
from fcojax.problems import Problem
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, euclidean, flat
from fcojax.types import Array, Count, Fraction, Key, NonNegative, Numbers, Params, PyTree
from fcojax.xla.rules import in_full_precision

_Strengths = Annotated[Any, Numbers("finite numbers of at least 0, or how many", lambda x: x >= 0)]
_NULL = 0x6E756C6C  # folded into the key of the null model; strengths have the indices from 0
_FIRST, _LATER = 30, 3  # power iterations from a random direction, and from the last one


class Path(NamedTuple):
    """Models along a grid of strengths.

    Attributes:
      strengths: [strengths], the largest first unless given otherwise.
      models: with a leading axis of strengths.
      outcome: how each solve ended, with a leading axis of strengths.
    """

    strengths: Array
    models: Params
    outcome: Outcome


@validated
def path(
    problem: Problem,
    penalty: Penalty,
    *,
    strengths: int | Sequence[float] | np.ndarray = 50,
    least: Fraction = 1e-2,
    key: Key | None = None,
    method: Callable[[Loss], Algorithm] | None = None,
    hparams: PyTree = None,
    plan: Plan | Work | None = None,
    tolerance: NonNegative = 1e-6,
    eval_every: Count = 10,
    max_rounds: Count = 10_000,
) -> Path:
    """Fit a model for each strength of a penalty, from the strongest on, as one program.

    The clients fit the unpenalised parameters (a bias), and one exchange of their gradients at that
    model gives the first strength: the smallest one at which all penalised parameters are zero. The
    grid descends from there geometrically; each solve starts at the linear extrapolation of the
    last two models, with their zeros kept, and stops once it is solved. The path of the package
    ``fcojax-sites``, ``fcojax_sites.path``, also finds a number of nonzeros and counts traffic.

    Args:
      problem: the loss, the clients and the start point, of which only the shapes are used.
      penalty: psi; it needs ``scale_max``, unless the strengths are given.
      strengths: their number, or the strengths in the order in which they are solved.
      least: the last strength as a share of the first, if ``strengths`` is a number.
      key: PRNG key, the only source of randomness; ``None`` for ``jax.random.key(0)``.
      method: ``loss -> algorithm``; by default FedMiD-OSP. With one full-batch step of every client
        per round, it is proximal gradient descent on F + psi and gives exact zeros.
      hparams: the method's hyperparameters, whose ``penalty_scale`` is replaced. By default
        ``client_lr`` is one over the largest curvature of F, found by power iterations.
      plan: how rounds are run; by default everyone takes one full-batch step.
      tolerance: largest violation of the optimality conditions, in units of the first strength.
      eval_every: rounds between two evaluations of the violation.
      max_rounds: rounds for each strength, rounded up to a multiple of ``eval_every``.

    Returns:
      The strengths, models and outcomes.

    Example:
      >>> import numpy as np, fcojax
      >>> x = np.eye(4, dtype=np.float32) * 2
      >>> y = np.array([4.0, 1.0, 0.0, 0.0], np.float32)
      >>> data = fcojax.from_rows({"x": x, "y": y}, [2, 2])
      >>> found = fcojax.path(fcojax.problems.least_squares(data), fcojax.transforms.l1(),
      ...                     strengths=3, least=0.25)
      >>> [(strength, round(w[0], 3)) for strength, w in
      ...  zip(found.strengths.tolist(), found.models.tolist())]
      [(2.0, 0.0), (1.0, 1.0), (0.5, 1.5)]
    """
    loss, data = problem.loss, problem.train
    plan = as_plan(local_steps(1) if plan is None else plan)
    key = jax.random.key(0) if key is None else key
    algorithm = fed_mid_osp(loss, euclidean(penalty)) if method is None else method(loss)
    checked_value("algorithm", algorithm, Algorithm)
    finds_rate = hparams is None
    hparams = algorithm.hparams_type() if finds_rate else hparams
    for name in ("penalty_scale", *(["client_lr"] if finds_rate else [])):
        if not hasattr(hparams, name):
            raise ValueError(
                f"the method's hyperparameters have no {name}, which a path sets; pass a method "
                "that has it, and hparams= if only the rate has another name."
            )
    require_run(algorithm, plan, hparams, data, key)
    relative = isinstance(strengths, int | np.integer)
    values = checked_value("strengths", strengths, Count if relative else _Strengths)
    if relative and penalty.scale_max is None:
        raise ValueError(
            "the penalty has no scale_max, so the first strength of its path is unknown; pass "
            "strengths= as a list."
        )
    # A list keeps its order: a caller may want warm starts from the weakest strength on.
    grid = np.geomspace(1.0, least, values) if relative else np.asarray(values, float)
    if grid.ndim != 1 or not grid.size:
        raise ValueError(
            f"strengths is {shown(strengths)}; pass a list of numbers, or their count."
        )
    # Zeros in the widest floating dtype, because gradients have it, and a scan keeps its own.
    start = as_params(problem.init(key))
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves((data.examples, start))]
    floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    widest = max(floats, key=lambda dtype: jnp.finfo(dtype).bits)
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, widest), start)
    program = Program(algorithm, plan, kkt(loss, penalty), 1, eval_every)
    max_rounds = -(-max_rounds // eval_every) * eval_every
    static = (program, loss, penalty, max_rounds, finds_rate, relative)
    return _path(static, as_arrays(hparams), start, data, key, grid, tolerance)


@jit_per(num_static=1, kept=16)
@in_full_precision
def _path(static, hparams, params, data, key, grid, tolerance) -> Path:
    program, loss, penalty, max_rounds, finds_rate, relative = static
    gradient = functools.partial(pooled_gradient, loss, data=data)
    first = jnp.ones_like(tree.norm(params))
    # 4e9 in float32: beyond any gradient, and its square is finite.
    beyond_all = first * jnp.finfo(first.dtype).max ** 0.25

    def begin(params, key):
        """Return the last two models with their strengths, and a direction of curvature."""
        return (params, beyond_all), (params, beyond_all), flat().random_point(params, key)

    def solve(start, strength, key, precision, num_iterations):
        last, earlier, direction = start
        params = _extrapolated(last, earlier, strength)
        now = hparams._replace(penalty_scale=tree.cast_like(strength, hparams.penalty_scale))
        if finds_rate:
            curvature, direction = _curvature(gradient, params, direction, num_iterations)
            now = now._replace(client_lr=tree.cast_like(1 / curvature, now.client_lr))
        model, outcome = solve_traced(program, max_rounds, now, params, data, key, precision)
        # The solve after one that diverged starts from the last sound model.
        sound = tree.where(~outcome.diverged & tree.all_finite(model), model, last[0])
        return ((sound, strength), last, direction), Path(strength, model, outcome)

    if penalty.scale_max is not None:
        # The null model, without penalised parameters. The guess only scales the tolerance.
        guess, own = penalty.scale_max(gradient(params)), jax.random.fold_in(key, _NULL)
        start, first_key = begin(params, own), jax.random.fold_in(own, 0)
        params = solve(start, beyond_all, first_key, tolerance * guess, _FIRST)[1].models
        first = penalty.scale_max(gradient(params))
    strengths = jnp.asarray(grid, first.dtype) * (first if relative else 1)
    # If all strengths are 0, the tolerance must not be 0, which no violation reaches.
    unit = first if relative else jnp.maximum(jnp.max(strengths), jnp.finfo(first.dtype).tiny)

    def solve_next(start, inputs):
        index, strength = inputs
        # Folded by the index, so that a longer path begins with the same solves.
        own = jax.random.fold_in(key, index)
        return solve(start, strength, own, tolerance * unit, jnp.where(index > 0, _LATER, _FIRST))

    index = jnp.arange(strengths.size, dtype=jnp.int32)
    return jax.lax.scan(solve_next, begin(params, key), (index, strengths))[1]


def _extrapolated(last: tuple[Params, Array], earlier: tuple[Params, Array], strength: Array):
    """Extrapolate linearly from two models with their strengths, by at most their distance."""
    gap = last[1] - earlier[1]
    share = jnp.clip((strength - last[1]) / jnp.where(gap == 0, jnp.inf, gap), -1, 1)

    def one(w, old):
        moved = w + share.astype(w.dtype) * (w - old)
        return jnp.where(moved * w > 0, moved, 0)  # zeros stay, and signs do not change

    return jax.tree.map(one, last[0], earlier[0])


def _curvature(gradient: Callable, params: Params, direction: Params, num_iterations: Any):
    """Estimate the largest curvature of F by power iterations; return its direction too."""

    def iterate(_, carry):
        image = jax.jvp(gradient, (params,), (carry[0],))[1]
        size = tree.norm(image)
        some = jnp.where(size > 0, size, 1)  # F may have no curvature in this direction
        return tree.where(size > 0, tree.scale(1 / some, image), carry[0]), some

    start = direction, jnp.ones_like(tree.norm(direction))
    direction, size = jax.lax.fori_loop(0, num_iterations, iterate, start)
    return 1.1 * size, direction  # power iterations converge from below
