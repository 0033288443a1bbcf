"""A chosen model fitted again without the penalty, with its zeros fixed."""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.extend import Outcome, in_full_precision, jit_per
from fcojax.problems import Problem
from fcojax.transforms import box
from fcojax.types import Key, Params, Scalar
from fcojax_sites.selection.ledger import Entry, Exchanges, entry_of_solves
from fcojax_sites.selection.path import prepared
from fcojax_sites.selection.solver import TRACED, warm_started
from fcojax_sites.selection.solves import FIRST_ITERATIONS, solver_of


def refit_of(
    problem: Problem, model: Params, key: Key, tolerance: Scalar, eval_every: int, max_rounds: int
) -> tuple[Params, Outcome, Entry]:
    """Return the model without the penalty on the support of another one, and its traffic."""
    low, high = (
        jax.tree.map(lambda leaf, end=end: np.where(np.asarray(leaf) != 0, end, 0.0), model)
        for end in (-np.inf, np.inf)
    )
    setup, hparams, _, _ = prepared(
        problem, box(low, high), key, None, None, None, eval_every, max_rounds
    )
    fits = _refit(setup, hparams, model, problem.train, key, tolerance)
    refitted, outcome = jax.tree.map(lambda leaf: leaf[0], (fits.models, fits.outcome))
    solve = entry_of_solves("refit", outcome)
    weights = np.asarray(problem.train.weights)
    rate = Exchanges(0, FIRST_ITERATIONS).entry("refit", tree.num_bytes(model), weights)
    return (
        refitted,
        outcome,
        Entry("refit", solve.down + rate.down, solve.up + rate.up, solve.rounds),
    )


@jit_per(num_static=1)
@in_full_precision
def _refit(setup, hparams, model, data, key, tolerance):
    dtype = jax.tree.leaves(model)[0].dtype
    solver = solver_of(setup, hparams, data)
    return warm_started(solver, TRACED, model, jnp.zeros(1, dtype), key, tolerance)
