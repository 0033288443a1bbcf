"""Results do not depend on the rows of clients whose weight is zero."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.algorithms import local_solvers
from fcojax.engine.plan import Plan
from fcojax.engine.stepper import start
from tests.laws.test_algorithm_laws import ROWS, factory, point, rates
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
        jax.tree.map(np.testing.assert_array_equal, clean, after(name, work, population(bad)))


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("name", SOME[:2])
def test_rows_of_weight_zero_on_two_devices(name, work):
    mesh, clean = fcojax.devices.device_mesh(clients=2), after(name, work, population())
    for bad in (None, np.nan, 1e300):
        found = after(name, work, fcojax.devices.shard_clients(population(bad), mesh))
        for a, b in zip(jax.tree.leaves(clean), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg", "fed_pd"])
def test_a_dropped_client_leaves_no_trace_of_its_numbers(name):
    """A dropped client has the same effect as an absent one, for any numbers."""
    data, found = population(), []
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = population(bad)
        found.append(after(name, "full", dataclasses.replace(spoilt, weights=jnp.ones(5))))
    assert found[0][2]["dropped"] == 4
    for other in found[1:]:
        jax.tree.map(np.testing.assert_array_equal, found[0], other)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found[0]))
    assert not np.allclose(
        jax.tree.leaves(found[0][0])[0], jax.tree.leaves(after(name, "full", data)[0])[0]
    )
