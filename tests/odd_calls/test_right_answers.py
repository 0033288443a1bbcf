"""What odd calls mean that are not refused."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax import grid as grids
from fcojax.transforms import group_l2
from tests.odd_calls.federation import (
    CLIENTS,
    DATA,
    FED_AVG,
    GRID,
    KEY,
    RATES,
    STEPS,
    ZERO,
    Custom,
    clients,
    custom,
    in_float32,
    metric,
    observed,
    planned,
    ran,
    rows,
    solved,
    squares,
    started,
    swept,
    weighed,
)


def rates(grid):
    return grid.client_lr.tolist()


def dtype_of(value):
    return str(clients(value).examples["a"].dtype)


def project(hparams):
    return hparams.direction @ jnp.array([1.0, 10.0])


MORE = fcojax.extended(RATES, "More", clip=1.0)
ON = (FED_AVG, RATES(0.5), ZERO, DATA)
FALLING = (fcojax.schedule([1.0, 0.5]), fcojax.schedule([2.0, 1.0]))

FACTORIES = {
    "a loss that was cached": (
        lambda: ran(algorithm=algorithms.fed_avg(functools.partial(squares))),
        1.0,
    ),
    "the same arguments twice": (
        lambda: algorithms.fed_dyn(squares) is algorithms.fed_dyn(squares),
        True,
    ),
    "labels of numpy": (
        lambda: group_l2(labels=np.array([0, 0])).prox(jnp.array([3.0, 4.0]), 1.0, 2.5),
        [1.5, 2.0],
    ),
}

HPARAMS = {
    "more hyperparameters than needed": (lambda: ran(hparams=MORE(0.5)), 1.0),
    "a tiny rate in float64": (lambda: ran(hparams=RATES(1e-50)), 2e-50),
    "a rate as an integer": (lambda: ran(hparams=RATES(1)), 2.0),
    "a rate in float16": (lambda: ran(hparams=RATES(np.float16(0.5))), 1.0),
    "a negative number": (lambda: metric(lambda h: h.shift, hparams=Custom(shift=-2.5)), [-2.5]),
    "a vector": (lambda: metric(project, hparams=Custom(direction=np.array([1.0, -2.0]))), [-19.0]),
    "a schedule of vectors": (
        lambda: metric(
            project,
            num_rounds=3,
            hparams=Custom(direction=fcojax.schedule(np.arange(6.0).reshape(3, 2))),
        ),
        [10.0, 32.0, 54.0],
    ),
    "an integer stays one": (
        lambda: metric(
            lambda h: jnp.float32(h.num_times.dtype == jnp.int64), hparams=Custom(num_times=3)
        ),
        [1.0],
    ),
    "no more fields": (lambda: fcojax.extended(RATES, "Same")(0.5).server_lr, 1.0),
}

RUNS = {
    "a certificate of a Python number": (
        lambda: solved(lambda h, w, d: {"violation": 0}, params=0.5 + ZERO),
        0.5,
    ),
    "a certificate of a truth value": (
        lambda: solved(lambda h, w, d: {"violation": w < 1.9}),
        2 - 2 ** (1 - 10),
    ),
    "a Python number to start from": (lambda: ran(params=0.0), 1.0),
    "an array of numpy to start from": (lambda: ran(params=np.zeros(())), 1.0),
    "a function to start from": (lambda: started(params=lambda key: ZERO + 1).server, 1.0),
    "rounds of numpy": (lambda: ran(num_rounds=np.int64(1)), 1.0),
    "rounds of JAX": (lambda: ran(num_rounds=jnp.array(1)), 1.0),
    "evaluations of numpy": (lambda: ran(num_rounds=2, eval_every=np.int32(2)), 1.5),
    "a measure that is a Python number": (lambda: observed(lambda h, w, c: {"w": 2}), [2]),
    "a measure of the state": (
        lambda: observed(fcojax.StateObserver(lambda h, state, c: {"w": state.round})),
        [1],
    ),
    "a number as context": (lambda: observed(lambda h, w, c: {"w": c * w}, context=2), [2.0]),
    "a sweep over lists": (lambda: swept(grid=RATES([0.25, 0.5], [1, 1])), [[0.5] * 2, [1.0] * 2]),
    "a sweep over a point twice": (
        lambda: swept(grid=grids.product(RATES, client_lr=[0.5, 0.5])),
        [[1.0] * 2] * 2,
    ),
    "a schedule for each point": (
        lambda: swept(grid=GRID._replace(server_lr=fcojax.schedule([[1.0], [2.0]]))),
        [[0.5] * 2, [2.0] * 2],
    ),
    "a sweep over vectors": (
        lambda: swept(
            algorithm=custom(), grid=grids.product(Custom, direction=[[1.0, 2.0], [3.0, 4.0]])
        ),
        [[1.0] * 2] * 2,
    ),
    "a chunk of more points than there are": (
        lambda: swept(plan=fcojax.Plan(STEPS, point_chunk_size=7)),
        [[0.5] * 2, [1.0] * 2],
    ),
    "a chunk of more clients than there are": (lambda: planned(client_chunk_size=9), 1.0),
    "devices for two clients": (lambda: fcojax.devices.spread(*ON, plan=STEPS).num_shards, 1),
    "one candidate": (
        lambda: fcojax.devices.fastest_chunk_size(*ON, plan=STEPS, candidates=(np.int64(1),)),
        1,
    ),
}

PLANS = {
    "steps of JAX": (lambda: fcojax.local_steps(jnp.array(3)).num_steps, 3),
    "an array of steps": (lambda: list(fcojax.local_steps(np.array([1, 2])).counts), [1, 2]),
    "more examples than there are, with replacement": (
        lambda: ran(plan=fcojax.local_steps(1, 3, replace=True)),
        1.0,
    ),
    "epochs of each client": (lambda: ran(plan=fcojax.local_epochs([1, 1])), 1.0),
    "losing nothing": (lambda: planned(cohort=fcojax.dropout(fcojax.everyone(), 0.0)), 1.0),
    "a round of Python": (
        lambda: fcojax.from_trace(np.eye(2, dtype=bool)).draw(KEY, 1, 2).members,
        [1],
    ),
    "a trace of JAX": (lambda: planned(cohort=fcojax.from_trace(jnp.eye(2, dtype=bool))), 0.5),
}

POPULATIONS = {
    "a generator of clients": (lambda: fcojax.from_clients(c for c in CLIENTS).num_clients, 2),
    "complex examples": (lambda: dtype_of(np.array([1j])), "complex128"),
    "truth values": (lambda: dtype_of(np.array([True])), "bool"),
    "a large integer in int64": (lambda: clients(np.array([2**40])).examples["a"], [2**40]),
    "a large float in float64": (lambda: clients(np.array([1e300])).examples["a"], [1e300]),
    "the largest int32": (
        in_float32(lambda: clients(np.array([2**31 - 1])).examples["a"]),
        [2**31 - 1],
    ),
    "sizes as whole floats": (lambda: rows([1.0, 2.0]).sizes, [1, 2]),
    "a negative power": (lambda: clients(np.ones(1), np.ones(2), weights=-1).weights, [1.0, 0.5]),
    "tiny weights in float32": (in_float32(lambda: weighed([1e-60, 3e-60])), 2.5),
    "tiny weights in float64": (lambda: weighed([1e-60, 3e-60]), 2.5),
    "weights out of the range of float32": (in_float32(lambda: weighed([1e60, 3e60])), 2.5),
    "weights whose sum overflows": (lambda: weighed([1e308, 1e308]), 2.0),
    "a weight of zero": (lambda: weighed([0, 3]), 3.0),
    "weights of truth values": (lambda: weighed([True, True]), 2.0),
    "whole floats as ids": (lambda: clients(np.ones(1), np.ones(2), ids=[2.0, 1.0]).ids, [1, 2]),
    "half floats as ids": (
        lambda: clients(np.ones(1), np.ones(2), ids=np.array([2, 1], np.float16)).ids,
        [1, 2],
    ),
    "ids in another order": (lambda: clients(np.ones(1), np.ones(2), ids=["b", "a"]).sizes, [2, 1]),
}

GRIDS = {
    "a value twice": (lambda: rates(grids.product(RATES, client_lr=[0.1, 0.1])), [0.1, 0.1]),
    "values of numpy": (
        lambda: rates(grids.product(RATES, client_lr=np.array([0.1, 0.2]))),
        [0.1, 0.2],
    ),
    "a generator": (
        lambda: rates(grids.product(RATES, client_lr=(x / 10 for x in (1, 2)))),
        [0.1, 0.2],
    ),
    "no fields": (lambda: rates(grids.product(RATES)), [0.01]),
    "integers stay integers": (
        lambda: str(grids.product(Custom, num_times=[1, 2]).num_times.dtype),
        "int64",
    ),
    "schedules": (
        lambda: grids.product(RATES, client_lr=FALLING).client_lr.values,
        [[1.0, 0.5], [2.0, 1.0]],
    ),
    "an extended field": (lambda: grids.product(MORE, clip=[1, 2]).clip, [1.0, 2.0]),
    "a negative number": (lambda: grids.random_draws(Custom, 2, 0, shift=-1.0).shift, [-1.0] * 2),
    "the default of a vector": (
        lambda: grids.random_draws(Custom, 3, 0, client_lr=(0.1, 1)).direction.shape,
        [3, 2],
    ),
    "one value between two": (lambda: grids.log_spaced(0.1, 1, 1), [0.1]),
    "a schedule of a constant": (lambda: fcojax.schedule(lambda r: 0.5, 2).values, [0.5, 0.5]),
}

TABLE = {
    f"{place}: {name}": row
    for place, table in (
        ("factory", FACTORIES),
        ("hparams", HPARAMS),
        ("run", RUNS),
        ("plan", PLANS),
        ("population", POPULATIONS),
        ("grid", GRIDS),
    )
    for name, row in table.items()
}


@pytest.mark.parametrize("name", TABLE)
def test_an_odd_call_means(name):
    call, expected = TABLE[name]
    found = call()
    if isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)
