"""Odd calls of run, sweep, start, advance, look, read_model, spread and fastest_chunk_size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms
from fcojax.transforms import euclidean, l1
from tests.odd_calls.table import (
    CLIENTS,
    DATA,
    FED_AVG,
    GRID,
    KEY,
    KEYS,
    RATES,
    STEPS,
    ZERO,
    OwnNumbers,
    begun,
    gives,
    gone_on,
    in_float32,
    own,
    ran,
    says,
    squares,
    swept,
    told,
)

OTHER = algorithms.fed_dual_avg.Hparams


def looked(**changes):
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "observe": lambda h, w, _: {"w": w}
    } | changes  # fmt: skip
    given["state"] = changes["state"] if "state" in changes else begun()
    return fcojax.look(**given)


def read(**changes):
    given = {"algorithm": FED_AVG, "hparams": RATES(0.5)} | changes
    given["state"] = changes["state"] if "state" in changes else begun()
    return fcojax.read_model(**given)


def spread(**changes):
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "params": ZERO, "data": DATA, "plan": STEPS
    } | changes  # fmt: skip
    return fcojax.spread(**given).num_shards


def fastest(**changes):
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "params": ZERO, "data": DATA, "plan": STEPS
    } | changes  # fmt: skip
    return fcojax.fastest_chunk_size(**given)


def seen(observe):
    return told(observe=observe)[1]["w"]


# With rate 1/2 a round from 0 ends at half the mean of 1 and 3.
RUNS = {
    "a key for a start point": says(
        lambda: ran(params=KEY), "params is a PRNG key; pass a start point, as problem.init(key)"
    ),
    "a list for a start point": says(
        lambda: ran(params=[0.0, 1.0]), "params is [0.0, 1.0], a list of numbers; pass an array"
    ),
    "a factory that was not called": says(
        lambda: ran(algorithm=algorithms.fed_avg), "call it: fed_avg(loss, ...)"
    ),
    "a partial factory": says(
        lambda: ran(algorithm=functools.partial(algorithms.fed_avg)),
        "which is no fcojax Algorithm",
    ),
    "no algorithm": says(lambda: ran(algorithm=None), "algorithm is None"),
    "the name of an algorithm": says(lambda: ran(algorithm="fed_avg"), "algorithm is 'fed_avg'"),
    "a list as data": says(lambda: ran(data=CLIENTS), "data is a list; pass a population"),
    "an array as data": says(lambda: ran(data=np.ones(3)), "data is a ndarray; pass a population"),
    "no hyperparameters": says(lambda: ran(hparams=None), "hparams is None; pass a named tuple"),
    "a number as hyperparameters": says(
        lambda: ran(hparams=0.1), "pass a named tuple of numbers, Rates(client_lr, server_lr)"
    ),
    "a dictionary as hyperparameters": says(
        lambda: ran(hparams={"client_lr": 0.1}), "pass a named tuple of numbers"
    ),
    "the type in place of hyperparameters": says(
        lambda: ran(hparams=RATES), "pass a named tuple of numbers"
    ),
    "hyperparameters of another algorithm": says(
        lambda: ran(hparams=OTHER()),
        "hparams is a PenalisedRates(client_lr, server_lr, penalty_scale), but this algorithm",
    ),
    "FedAvg's in FedDualAvg": says(
        lambda: ran(algorithm=algorithms.fed_dual_avg(squares, euclidean(l1()))),
        "this algorithm takes PenalisedRates(client_lr, server_lr, penalty_scale)",
    ),
    "FedDyn's in FedPD": says(
        lambda: ran(
            algorithm=algorithms.fed_pd(squares, l1()), hparams=algorithms.fed_dyn.Hparams()
        ),
        "pass its own factory's Hparams",
    ),
    "more hyperparameters than needed": gives(
        lambda: ran(hparams=fcojax.extended(RATES, "More", clip=1.0)(0.5)), 1.0
    ),
    "a rate as a string": says(lambda: ran(hparams=RATES("0.1")), "client_lr is '0.1'; pass a num"),
    "a rate of None": says(lambda: ran(hparams=RATES(None)), "client_lr is None; pass a number"),
    "a complex rate": says(lambda: ran(hparams=RATES(0.1j)), "client_lr is 0.1j; pass a number"),
    "a rate in a list": says(lambda: ran(hparams=RATES([0.1])), "client_lr has shape (1,)"),
    "rates as a list": says(
        lambda: ran(hparams=RATES([0.1, 0.2]), num_rounds=2), "fcojax.schedule(values)"
    ),
    "a ragged list of rates": says(
        lambda: ran(hparams=RATES([[0.1], [0.1, 0.2]])), "client_lr is [[0.1], [0.1, 0.2]]; pass"
    ),
    "a rate of zero": says(lambda: ran(hparams=RATES(0.0)), "client_lr is 0.0; it must be finite"),
    "a rate below zero": says(lambda: ran(hparams=RATES(-1)), "client_lr is -1.0; it must be"),
    "a rate that is NaN": says(lambda: ran(hparams=RATES(np.nan)), "client_lr is nan"),
    "a rate too small for float32": says(
        in_float32(lambda: ran(hparams=RATES(1e-50))), "client_lr is 1e-50; it must be finite and"
    ),
    "a rate too large for float32": says(
        in_float32(lambda: ran(hparams=RATES(1e50))), "within the range of float32"
    ),
    "a tiny rate in float64": gives(lambda: ran(hparams=RATES(1e-50)), 2e-50),
    "a rate as an integer": gives(lambda: ran(hparams=RATES(1)), 2.0),
    "a rate of numpy's float16": gives(lambda: ran(hparams=RATES(np.float16(0.5))), 1.0),
    "a rate of numpy's int8": gives(lambda: ran(hparams=RATES(np.int8(1))), 2.0),
    "a grid of as many points as rounds": says(
        lambda: ran(hparams=GRID, num_rounds=2), "a grid goes to fcojax.sweep"
    ),
    "a schedule that ends too soon": says(
        lambda: ran(hparams=RATES(fcojax.schedule([0.5])), num_rounds=2),
        "the schedule of client_lr has 1 values; pass one for each of the 2 rounds",
    ),
    "a schedule of vectors for a number": says(
        lambda: ran(hparams=RATES(fcojax.schedule([[0.5, 0.5]]))), "client_lr has shape (2,)"
    ),
    "a schedule of integers": gives(lambda: ran(hparams=RATES(fcojax.schedule([1]))), 2.0),
    "a schedule with a NaN": says(
        lambda: ran(hparams=RATES(fcojax.schedule([np.nan]))), "client_lr is [nan]"
    ),
    "a negative number of one's own": gives(
        lambda: told(algorithm=own(x=lambda h: h.shift), hparams=OwnNumbers(shift=-2.5))[1]["x"],
        [-2.5],
    ),
    "a vector of one's own": gives(
        lambda: told(
            algorithm=own(x=lambda h: h.direction @ jnp.array([1.0, 10.0])),
            hparams=OwnNumbers(direction=np.array([1.0, -2.0])),
        )[1]["x"],
        [-19.0],
    ),
    "a schedule of vectors of one's own": gives(
        lambda: told(
            algorithm=own(x=lambda h: h.direction @ jnp.array([1.0, 10.0])), num_rounds=3,
            hparams=OwnNumbers(direction=fcojax.schedule(np.arange(6.0).reshape(3, 2))),
        )[1]["x"],
        [10.0, 32.0, 54.0],
    ),
    "an integer of one's own": gives(
        lambda: told(
            algorithm=own(x=lambda h: jnp.float32(h.num_times.dtype == jnp.int64)),
            hparams=OwnNumbers(num_times=3),
        )[1]["x"],
        [1.0],
    ),
    "an integer too large for int32": says(
        in_float32(lambda: ran(algorithm=own(), hparams=OwnNumbers(num_times=2**40))),
        "num_times is 1099511627776; it must be",
    ),
    "a float where the default is whole": gives(
        lambda: told(
            algorithm=own(x=lambda h: h.num_times), hparams=OwnNumbers(num_times=1.5)
        )[1]["x"],
        [1.5],
    ),
    "a starting point of whole numbers": says(
        lambda: ran(params=jnp.zeros((), int)), "params has dtype int64; pass floats"
    ),
    "a starting point of truth values": says(
        lambda: ran(params=np.array(True)), "params has dtype bool; pass floats"
    ),
    "one whole leaf among floats": says(
        lambda: ran(params={"w": ZERO, "n": np.arange(2)}), "params.n has dtype int64"
    ),
    "a starting point of Python's": gives(lambda: ran(params=0.0), 1.0),
    "a starting point of numpy's": gives(lambda: ran(params=np.zeros(())), 1.0),
    "no starting point": says(lambda: ran(params=None), "params has no arrays"),
    "an empty starting point": says(lambda: ran(params={}), "params has no arrays"),
    "a string to start from": says(lambda: ran(params="zeros"), "params is 'zeros'; pass"),
    "a function to start from": says(lambda: ran(params=lambda key: ZERO), "fcojax.start"),
    "a starting point that is NaN": says(
        lambda: ran(params=jnp.array(np.nan)), "params is not finite"
    ),
    "an infinite leaf to start from": says(
        lambda: ran(params={"w": np.array([1.0, np.inf])}), "params.w is not finite"
    ),
    "an old key": says(lambda: ran(key=jax.random.PRNGKey(0)), "pass a key as jax.random.key(0)"),
    "a seed as key": says(lambda: ran(key=0), "key is 0; pass a key as jax.random.key(0)"),
    "no key": says(lambda: ran(key=None), "key is None"),
    "several keys": says(lambda: ran(key=KEYS), "keys is a vector of 2: pass one key to run"),
    "several keys and a grid": says(lambda: ran(key=KEYS, hparams=GRID), "or use fcojax.sweep"),
    "no rounds": says(lambda: ran(num_rounds=0), "num_rounds is 0; pass a whole number"),
    "minus one round": says(lambda: ran(num_rounds=-1), "num_rounds is -1"),
    "half a round": says(lambda: ran(num_rounds=0.5), "num_rounds is 0.5"),
    "rounds as a string": says(lambda: ran(num_rounds="1"), "num_rounds is '1'"),
    "rounds as a truth value": says(lambda: ran(num_rounds=True), "num_rounds is True"),
    "more rounds than are counted": says(lambda: ran(num_rounds=2**31), "at most 2147483647"),
    "rounds of numpy's": gives(lambda: ran(num_rounds=np.int64(1)), 1.0),
    "rounds of JAX's": gives(lambda: ran(num_rounds=jnp.array(1)), 1.0),
    "looks that do not fit": says(
        lambda: ran(num_rounds=3, eval_every=2), "which does not divide num_rounds = 3; pass a div"
    ),
    "no rounds between looks": says(lambda: ran(eval_every=0), "eval_every is 0"),
    "looks of numpy's": gives(lambda: ran(num_rounds=2, eval_every=np.int32(2)), 1.5),
    "a number to observe with": says(lambda: ran(observe=3), "observe is 3; pass a function"),
    "an observer of two things": says(
        lambda: ran(observe=lambda hparams, model: {}), "(hparams, model, context)"
    ),
    "an observer of no dictionary": says(
        lambda: ran(observe=lambda h, w, c: w), "return a dictionary"
    ),
    "an observer of nothing": says(lambda: ran(observe=lambda h, w, c: None), "return a dictio"),
    "an observer of strings": says(
        lambda: ran(observe=lambda h, w, c: {"w": "high"}), "observe says that w is 'high'; return"
    ),
    "an observer of a count": says(
        lambda: ran(observe=lambda h, w, c: {"dropped": w}),
        "observe returns a measure called dropped, which the engine counts itself; choose",
    ),
    "an observer of the round": says(
        lambda: ran(observe=lambda h, w, c: {"round": w}), "a measure called round"
    ),
    "an observer of Python's numbers": gives(lambda: seen(lambda h, w, c: {"w": 2}), [2]),
    "an observer of Python's float": says(
        lambda: ran(observe=lambda h, w, c: {"w": float(w)}), "observe is traced, so its numbers"
    ),
    "an observer of numpy's arrays": says(
        lambda: ran(observe=lambda h, w, c: {"w": np.asarray(w)}), "use jnp in place of float"
    ),
    "an observer of the whole state": gives(
        lambda: seen(fcojax.OfState(lambda h, state, c: {"w": state.round})), [1]
    ),
    "no observer of the whole state": says(lambda: ran(observe=fcojax.OfState(3)), "observe is 3"),
    "a measure of clients that is a count": says(
        lambda: ran(algorithm=own(lost=lambda h: ZERO)), "a measure called lost"
    ),
    "no context for an observer that needs one": says(
        lambda: ran(observe=lambda h, w, c: {"loss": c["a"] - w}), "pass context=..., the arrays"
    ),
    "a string as context": says(lambda: ran(context="data"), "context is 'data'; pass arrays"),
    "numbers as context": gives(
        lambda: told(context=2, observe=lambda h, w, c: {"w": c * w})[1]["w"], [2.0]
    ),
    "a loss of a sum": says(
        lambda: ran(algorithm=algorithms.fed_avg(lambda w, rows: jnp.sum(squares(w, rows)))),
        "must return one number for each",
    ),
    "a loss of whole numbers": says(
        lambda: ran(algorithm=algorithms.fed_avg(lambda w, rows: rows["a"].astype(int))),
        "the loss returned numbers of dtype int64; return floats",
    ),
    "a loss that returns nothing": says(
        lambda: ran(algorithm=algorithms.fed_avg(lambda w, rows: None)),
        "the loss returned None; return one number an example",
    ),
    "a loss that returns two things": says(
        lambda: ran(algorithm=algorithms.fed_avg(lambda w, rows: (squares(w, rows), {}))),
        "return one number an example",
    ),
}  # fmt: skip

SWEEPS = {
    "one key": says(lambda: swept(keys=KEY), "keys is a single key; pass one for each seed"),
    "no seeds": says(lambda: swept(keys=KEYS[:0]), "keys is empty; pass one for each seed"),
    "a matrix of keys": says(lambda: swept(keys=KEYS[None]), "or a vector of keys"),
    "seeds as numbers": says(lambda: swept(keys=[0, 1]), "or a vector of keys"),
    "numbers in place of a grid": says(
        lambda: swept(grid=RATES(0.1)), "client_lr is one number, but a sweep takes a grid"
    ),
    "columns of two lengths": says(
        lambda: swept(grid=RATES(np.ones(2), np.ones(3))), "give all the same number"
    ),
    "a grid of no points": says(
        lambda: swept(grid=RATES(np.ones(0), np.ones(0))), "the grid has no points"
    ),
    "lists": gives(lambda: swept(grid=RATES([0.25, 0.5], [1, 1])), [[0.5] * 2, [1.0] * 2]),
    "a point below zero": says(
        lambda: swept(grid=RATES(np.array([0.1, -1.0]), np.ones(2))), "client_lr is [0.1, -1.0]"
    ),
    "a point twice": gives(
        lambda: swept(grid=fcojax.product(RATES, client_lr=[0.5, 0.5])), [[1.0] * 2] * 2
    ),
    "one schedule for a grid": says(
        lambda: swept(grid=GRID._replace(server_lr=fcojax.schedule([1.0, 1.0]))),
        "server_lr is one schedule, but a sweep takes",
    ),
    "a schedule for each point": gives(
        lambda: swept(grid=GRID._replace(server_lr=fcojax.schedule([[1.0], [2.0]]))),
        [[0.5] * 2, [2.0] * 2],
    ),
    "a grid of another algorithm": says(
        lambda: swept(grid=fcojax.product(OTHER, client_lr=[0.1])), "hparams is a PenalisedRates"
    ),
    "a grid of dictionaries": says(
        lambda: swept(grid=[{"client_lr": 0.1}]), "pass a named tuple of numbers"
    ),
    "no points side by side": says(
        lambda: swept(plan=fcojax.Plan(STEPS, point_chunk_size=0)), "point_chunk_size is 0"
    ),
    "points of numpy's side by side": gives(
        lambda: swept(plan=fcojax.Plan(STEPS, point_chunk_size=np.int64(1))),
        [[0.5] * 2, [1.0] * 2],
    ),
    "more side by side than there are": gives(
        lambda: swept(plan=fcojax.Plan(STEPS, point_chunk_size=7)), [[0.5] * 2, [1.0] * 2]
    ),
    "a grid of vectors of one's own": gives(
        lambda: swept(
            algorithm=own(), grid=fcojax.product(OwnNumbers, direction=[[1.0, 2.0], [3.0, 4.0]])
        ),
        [[1.0] * 2] * 2,
    ),
    "a function to sweep from": says(lambda: swept(params=lambda key: ZERO), "fcojax.start"),
}  # fmt: skip

STEPWISE = {
    "start: a list as data": says(lambda: begun(data=CLIENTS), "data is a list"),
    "start: a factory": says(lambda: begun(algorithm=algorithms.fed_avg), "call it: fed_avg(loss"),
    "start: a number as plan": says(lambda: begun(plan=5), "plan is 5; pass how much clients work"),
    "start: nothing to start from": says(lambda: begun(params={}), "params has no arrays"),
    "start: a function": gives(lambda: begun(params=lambda key: ZERO + 1).server, 1.0),
    "start: a function of nothing": says(lambda: begun(params=lambda: ZERO), "(key) -> params"),
    "start: a function of nothing good": says(
        lambda: begun(params=lambda key: "zero"), "params is 'zero'; pass"
    ),
    "advance: a model as state": says(
        lambda: gone_on(state=ZERO), "pass one that fcojax.start made"
    ),
    "advance: no state": says(lambda: gone_on(state=None), "the state is None; pass one"),
    "advance: the state of a sweep": says(
        lambda: gone_on(state=begun(key=KEYS, hparams=GRID)), "but a sweep takes a grid"
    ),
    "advance: the state of another model": says(
        lambda: gone_on(
            algorithm=algorithms.fed_dual_avg(squares, euclidean(l1())), hparams=OTHER(0.5)
        ),
        "the state is none of this algorithm",
    ),
    "advance: no rounds": says(lambda: gone_on(num_rounds=0), "num_rounds is 0"),
    "advance: rounds of numpy's": gives(lambda: gone_on(num_rounds=np.int32(1)), 1.0),
    "advance: an observer of nothing": says(lambda: gone_on(observe=3), "observe is 3"),
    "advance: a number as plan": says(lambda: gone_on(plan=1), "plan is 1; pass how much"),
    "look: no state": says(lambda: looked(state=ZERO), "pass one that fcojax.start made"),
    "look: nobody looks": says(lambda: looked(observe=None), "observe is None; pass a function"),
    "look: no dictionary": says(lambda: looked(observe=lambda h, w, c: w), "return a dictionary"),
    "look: a factory": says(lambda: looked(algorithm=algorithms.fed_avg), "call it: fed_avg(loss"),
    "look: other numbers": says(lambda: looked(hparams=OTHER()), "hparams is a PenalisedRates"),
    "look: no numbers": says(lambda: looked(hparams=None), "hparams is None; pass a named tuple"),
    "read_model: no state": says(lambda: read(state=3), "pass one that fcojax.start made"),
    "read_model: other numbers": says(lambda: read(hparams=OTHER()), "hparams is a Penalised"),
    "read_model: a factory": says(lambda: read(algorithm=algorithms.fed_avg), "call it: fed_avg"),
}

MACHINES = {
    "spread: a number as plan": says(lambda: spread(plan=3), "plan is 3; pass how much clients"),
    "spread: no numbers": says(lambda: spread(hparams=None), "hparams is None; pass a named tuple"),
    "spread: two clients": gives(lambda: spread(), 1),
    "fastest: a number as plan": says(lambda: fastest(plan=3), "plan is 3; pass how much clients"),
    "fastest: a list as data": says(lambda: fastest(data=CLIENTS), "data is a list"),
    "fastest: no candidates": says(lambda: fastest(candidates=()), "pass at least one size"),
    "fastest: a candidate of zero": says(lambda: fastest(candidates=(1, 0)), "candidates are (1,"),
    "fastest: one number": says(lambda: fastest(candidates=4), "candidates are 4; pass"),
    "fastest: a candidate's name": says(lambda: fastest(candidates=("1",)), "candidates are ("),
    "fastest: no points": says(lambda: fastest(num_points=0), "num_points is 0"),
    "fastest: no seeds": says(lambda: fastest(num_seeds=0), "num_seeds is 0"),
    "fastest: a candidate of numpy's": gives(lambda: fastest(candidates=(np.int64(1),)), 1),
}  # fmt: skip

TABLE = {
    f"{place}: {name}": odd
    for place, rows in (("run", RUNS), ("sweep", SWEEPS), ("own loop", STEPWISE), ("", MACHINES))
    for name, odd in rows.items()
}
