"""A sweep does not copy the population, as branches on mapped conditions would for each point.

That it equals its runs, with absence, losses, chunks and devices, is in ``test_chain``.
"""

import re

import jax
import jax.numpy as jnp
import pytest

import fcojax
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled
from tests.laws.test_algorithm_laws import CLIENTS, point, rates
from tests.laws.test_rows_without_weight import NAMES, SOME, build

DATA = fcojax.from_clients([CLIENTS[m % len(CLIENTS)] for m in range(101)])
NUM_ROWS = len(jax.tree.leaves(DATA.examples)[0])
# Samplers and chunk sizes.
COHORTS = {
    "a chunk that is not full": (fcojax.uniform_cohort(cohort_size=7), 4),
    "coins": (fcojax.coin_flips(0.1), 1),
    "everyone": (fcojax.everyone(), 4),
}
PAIRS = [
    (name, cohort)
    for name in NAMES
    for cohort in (COHORTS if name in SOME else ("a chunk that is not full", "everyone"))
    if cohort == "everyone" or not build(name).facts.needs_everyone
]


def arrays_of_everybody(text):
    """Return arrays of a program with all rows and a further axis."""
    return set(re.findall(rf"\w+\[(?:\d+,)+{NUM_ROWS}\b[\d,]*\]", text))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cohort"), PAIRS)
def test_a_sweep_copies_nobody(name, cohort):
    algorithm, row = build(name), "fed_pd" if name == "variance_reduced" else name
    who, chunk_size = COHORTS[cohort]
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), as_arrays(rates(row)))
    steps = (1,) if name in ("fed_gd", "prox_skip") else (2, 2)
    plan = fcojax.Plan(fcojax.local_steps(*steps), who, client_chunk_size=chunk_size)
    keys = jax.random.split(jax.random.key(0), 3)

    def started(keys):
        return fcojax.start(algorithm, grid, point(row), DATA, keys, plan)

    state = jax.eval_shape(started, keys)
    program = advance_compiled.trace(Program(algorithm, plan), grid, DATA, state, None)
    assert not arrays_of_everybody(str(program.jaxpr))


def test_a_branch_on_a_mapped_condition_is_seen():
    rows = jax.tree.leaves(DATA.examples)[0]

    def first(condition, place):
        return jax.lax.cond(condition, lambda: rows[place], lambda: rows[0])

    program = jax.make_jaxpr(jax.vmap(first))(jnp.ones(3, bool), jnp.arange(3))
    assert any(f"[3,{NUM_ROWS}" in found for found in arrays_of_everybody(str(program)))
