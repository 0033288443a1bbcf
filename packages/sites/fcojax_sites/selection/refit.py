"""A chosen model fitted again without the penalty, with its zeros fixed."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.extend import Outcome, in_full_precision, jit_per, solve_traced
from fcojax.problems import Problem
from fcojax.transforms import Penalty, flat
from fcojax.types import Array, Key, Params, Scalar
from fcojax_sites.selection.ledger import Entry, Exchanges, entry_of_solves
from fcojax_sites.selection.path import prepared
from fcojax_sites.selection.solves import FIRST_ITERATIONS, curvature_at


def refit_of(
    problem: Problem, model: Params, key: Key, tolerance: Scalar, eval_every: int, max_rounds: int
) -> tuple[Params, Outcome, Entry]:
    """Return the model without the penalty on the support of another one, and its traffic."""
    setup, hparams, _, _ = prepared(
        problem, _ON_SUPPORT, key, None, None, None, eval_every, max_rounds
    )
    support = np.concatenate([np.ravel(leaf) != 0 for leaf in jax.tree.leaves(model)])
    refitted, outcome = _refit(
        setup, hparams, model, support.astype(float), problem.train, key, tolerance
    )
    solve = entry_of_solves("refit", outcome)
    weights = np.asarray(problem.train.weights)
    rate = Exchanges(0, FIRST_ITERATIONS).entry("refit", tree.num_bytes(model), weights)
    return (
        refitted,
        outcome,
        Entry("refit", solve.down + rate.down, solve.up + rate.up, solve.rounds),
    )


def _on_support(point: Params, support: Array) -> Params:
    """Return the point with zeros wherever the vector ``support`` is 0."""
    vector, as_tree = ravel_pytree(point)
    return as_tree(jnp.where(support > 0, vector, 0))


# The zeros of a model stay. Its support is the strength, so that it is traced: as a constant each
# support would be another program.
_ON_SUPPORT = Penalty(
    value=lambda x, support: jnp.zeros((), jax.tree.leaves(x)[0].dtype),
    prox=lambda v, step, support: _on_support(v, support),
    subdiff_distance=lambda x, v, support: tree.euclidean_norm(_on_support(v, support)),
)


@jit_per(num_static=1)
@in_full_precision
def _refit(setup, hparams, model, support, data, key, tolerance):
    direction = flat().random_point(model, key)
    size = jnp.ones_like(tree.norm(direction))
    size, _ = curvature_at(setup.loss, model, data, size, direction, FIRST_ITERATIONS)
    rate = tree.cast_like(1 / (1.1 * size), hparams.client_lr)
    hparams = hparams._replace(client_lr=rate, penalty_scale=support)
    own = jax.random.fold_in(key, 0)
    return solve_traced(setup.program, setup.max_rounds, hparams, model, data, own, tolerance)
