"""Unusual calls that are allowed, and their results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, clock, problems, transforms, uploads
from fcojax import grid as grids
from tests.odd_calls.federation import (
    GRID,
    RATES,
    STEPS,
    ZERO,
    Custom,
    clients,
    in_float32,
    metric,
    observed,
    ran,
    solved,
    squares,
    started,
    swept,
    weighed,
)


def rates(grid):
    return grid.client_lr.tolist()


def project(hparams):
    return hparams.direction @ jnp.array([1.0, 10.0])


def descended(uploads):
    """Return the model of gradient descent, which takes the plain mean only."""
    chosen, rate = algorithms.fed_gd(squares), algorithms.fed_gd.Hparams(0.5)
    return ran(algorithm=chosen, hparams=rate, plan=fcojax.Plan(STEPS, uploads=uploads))


TRUTHS = {"x": np.ones((2, 1)), "y": np.array([True, False])}
HUGE = clients(np.ones(1), np.array([1e30]))
ORIGIN = {"kernel": jnp.zeros(1), "bias": ZERO}
BEYOND = uploads.sparse.Sparse(jnp.ones(1), jnp.array([192], jnp.uint8))  # place 3, in two bits
FALLING = (fcojax.schedule([1.0, 0.5]), fcojax.schedule([2.0, 1.0]))

TABLE = {
    "a tiny rate in float64": (lambda: ran(hparams=RATES(1e-50)), 2e-50),
    "a vector": (lambda: metric(project, hparams=Custom(direction=np.array([1.0, -2.0]))), [-19.0]),
    "an integer stays one": (
        lambda: metric(
            lambda h: jnp.float32(h.num_times.dtype == jnp.int64), hparams=Custom(num_times=3)
        ),
        [1.0],
    ),
    "a certificate of a truth value": (
        lambda: solved(lambda h, w, d: {"violation": w < 1.9}),
        2 - 2 ** (1 - 10),
    ),
    "a Python number to start from": (lambda: ran(params=0.0), 1.0),
    "a function to start from": (lambda: started(params=lambda key: ZERO + 1).server, 1.0),
    "a number as context": (lambda: observed(lambda h, w, c: {"w": c * w}, context=2), [2.0]),
    "a schedule for each point": (
        lambda: swept(grid=GRID._replace(server_lr=fcojax.schedule([[1.0], [2.0]]))),
        [[0.5] * 2, [2.0] * 2],
    ),
    "a chunk of more points than there are": (
        lambda: swept(plan=fcojax.Plan(STEPS, point_chunk_size=7)),
        [[0.5] * 2, [1.0] * 2],
    ),
    "more examples than there are, with replacement": (
        lambda: ran(plan=fcojax.local_steps(1, 3, replace=True)),
        1.0,
    ),
    # Full gradients that must arrive as they are: the model is half of their mean.
    "losing nothing": (lambda: descended(fcojax.dropout(0.0)), 1.0),
    "a deadline that all meet": (lambda: descended(clock.deadline(np.ones((1, 2)), 5.0)), 1.0),
    "weights of clients that are always there": (
        lambda: descended(fcojax.uploads.inverse_probability("known")),
        1.0,
    ),
    "the largest int32": (
        in_float32(lambda: clients(np.array([2**31 - 1])).examples["a"]),
        [2**31 - 1],
    ),
    "a negative power": (lambda: clients(np.ones(1), np.ones(2), weights=-1).weights, [1.0, 0.5]),
    "tiny weights in float32": (in_float32(lambda: weighed([1e-60, 3e-60])), 2.5),
    "weights out of the range of float32": (in_float32(lambda: weighed([1e60, 3e60])), 2.5),
    "weights whose sum overflows": (lambda: weighed([1e308, 1e308]), 2.0),
    "a weight of zero": (lambda: weighed([0, 3]), 3.0),
    "ids in another order": (lambda: clients(np.ones(1), np.ones(2), ids=["b", "a"]).sizes, [2, 1]),
    "a value twice": (lambda: rates(grids.product(RATES, client_lr=[0.1, 0.1])), [0.1, 0.1]),
    "schedules": (
        lambda: grids.product(RATES, client_lr=FALLING).client_lr.values,
        [[1.0, 0.5], [2.0, 1.0]],
    ),
    "labels that are truth values": (
        lambda: problems.logistic(fcojax.from_rows(TRUTHS, [2])).loss(ORIGIN, TRUTHS),
        [np.log(2)] * 2,
    ),
    "a traced share": (
        lambda: jax.jit(lambda r: transforms.elastic_net(r).prox(np.array([3.0, 0.5]), 1.0, 2.0))(
            0.5
        ),
        [2 / 3, 0.0],
    ),
    # NaN is not counted.
    "a place beyond the vector": (
        lambda: uploads.top_k(1).decode(None, BEYOND, None, jnp.zeros(3)),
        [np.nan] * 3,
    ),
    # Finiteness is all that is checked.
    "a huge upload": (lambda: ran(data=HUGE), 0.25e30),
    "a huge upload beyond a bound": (
        lambda: ran(data=HUGE, plan=fcojax.Plan(STEPS, uploads=fcojax.norm_bound(10.0))),
        0.5,
    ),
    "a schedule of a constant": (lambda: fcojax.schedule(lambda r: 0.5, 2).values, [0.5, 0.5]),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_odd_call_is_allowed_and_means_this(name):
    call, expected = TABLE[name]
    np.testing.assert_allclose(np.asarray(call()), np.asarray(expected), rtol=1e-6)
