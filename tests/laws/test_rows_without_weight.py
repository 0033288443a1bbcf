"""Results do not depend on the rows of clients without weight, and a sweep copies no rows."""

import dataclasses
import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.algorithms import local_solvers
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Plan, Program
from fcojax.engine.run import advance_compiled
from fcojax.engine.stepper import start
from tests.laws.test_algorithm_laws import CLIENTS, ROWS, factory, point, rates
from tests.support import federations

# Clients 1 and 3 have weight zero; their rows are between those of the others.
WEIGHTS = (1.0, 0.0, 2.0, 0.0, 1.5)
WEIGHTLESS = (1, 3)
WORKS = {"full": fcojax.local_steps(2), "minibatches": fcojax.local_steps(2, 3)}
BAD = (np.nan, np.inf, 1e300, -1e300)
SOME = ("fed_dual_avg", "fed_dyn", "r_fed_svrg")
NAMES = (*ROWS, "variance_reduced")
# The engine masks these rows, so one kind of work is enough for most algorithms; FedGD takes only
# full gradients.
PAIRS = [(name, "full" if name == "fed_gd" else "minibatches") for name in NAMES]
PAIRS += [(name, "full") for name in SOME]


@functools.cache
def build(name):
    if name == "variance_reduced":
        solver = local_solvers.variance_reduced(refresh_every=2)
        return algorithms.fed_pd(federations.quadratic, ROWS["fed_pd"].geometry, solver=solver)
    geometry = ROWS[name].geometry
    given = () if geometry is None else (geometry,)
    return factory(name)(federations.quadratic, *given)


@functools.cache
def population(bad=None):
    """Return the clients, with ``bad`` in all rows of clients with weight zero."""
    data = fcojax.from_clients(federations.quadratic_clients(), WEIGHTS)
    if bad is None:
        return data
    owner = np.repeat(np.arange(data.num_clients), np.asarray(data.sizes))
    foreign = np.isin(owner, WEIGHTLESS)

    def spoil(leaf):
        columns = (-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(foreign.reshape(columns), bad, leaf)

    return dataclasses.replace(data, examples=jax.tree.map(spoil, data.examples))


def after(name, work, data):
    """Return the whole state after two rounds, and the counts."""
    row = "fed_pd" if name == "variance_reduced" else name
    given, plan, key = (build(name), rates(row)), Plan(WORKS[work]), jax.random.key(1)
    first = start(*given, point(row), data, key, plan)
    state, metrics = federations.block(given[0], plan, 2, given[1], data, first)
    clients = jax.tree.map(lambda leaf: leaf[: data.num_clients], state.clients)
    return state.server, clients, metrics


@pytest.mark.slow
@pytest.mark.parametrize(("name", "work"), PAIRS)
def test_rows_of_weight_zero_may_hold_anything(name, work):
    clean = after(name, work, population())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
    assert clean[2]["participants"] == 6 and clean[2]["dropped"] == 0
    for bad in BAD:
        chex.assert_trees_all_equal(clean, after(name, work, population(bad)))


@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg", "fed_pd"])
def test_a_dropped_client_leaves_no_trace_of_its_numbers(name):
    """A dropped client has the same effect as an absent one, for any numbers."""
    data, found = population(), []
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = population(bad)
        found.append(after(name, "full", dataclasses.replace(spoilt, weights=jnp.ones(5))))
    assert found[0][2]["dropped"] == 4
    for other in found[1:]:
        chex.assert_trees_all_equal(found[0], other)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found[0]))
    assert not np.allclose(
        jax.tree.leaves(found[0][0])[0], jax.tree.leaves(after(name, "full", data)[0])[0]
    )


# A sweep does not copy the population, as branches on mapped conditions would for each point.

DATA = fcojax.from_clients([CLIENTS[m % len(CLIENTS)] for m in range(101)])
NUM_ROWS = len(jax.tree.leaves(DATA.examples)[0])
# Samplers and chunk sizes.
COHORTS = {
    "a chunk that is not full": (fcojax.uniform_cohort(cohort_size=7), 4),
    "coins": (fcojax.coin_flips(0.1), 1),
    "everyone": (fcojax.everyone(), 4),
}


def arrays_of_everybody(text):
    """Return arrays of a program with all rows and a further axis."""
    return set(re.findall(rf"\w+\[(?:\d+,)+{NUM_ROWS}\b[\d,]*\]", text))


@pytest.mark.slow
@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "fed_gd"])
def test_a_sweep_copies_nobody(name, cohort):
    algorithm, row = build(name), "fed_pd" if name == "variance_reduced" else name
    who, chunk_size = COHORTS[cohort]
    if algorithm.facts.needs_everyone:
        who = fcojax.everyone()
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), as_arrays(rates(row)))
    steps = (1,) if name == "prox_skip" else (2, 2)
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
