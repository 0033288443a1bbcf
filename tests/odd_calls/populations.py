"""Odd clients: rows, sizes, weights and ids, and numbers that the device cannot hold."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from tests.odd_calls.table import CLIENTS, RATES, gives, in_float32, ran, says

ROWS = {"a": np.array([1.0, 3.0, 3.0])}


def clients(*values, **more):
    return fcojax.from_clients([{"a": value} for value in values], **more)


def rows(sizes, **more):
    return fcojax.from_rows(ROWS, sizes, **more)


def weighed(weights):
    """FedAvg in float32 on the clients with these weights, from 0 to their weighted mean."""
    data = fcojax.from_clients(
        [{"a": np.array([1.0], np.float32)}, {"a": np.array([3.0, 3.0], np.float32)}], weights
    )
    return ran(data=data, hparams=RATES(1.0), params=jnp.zeros((), jnp.float32))


def dtype_of(value):
    return str(clients(value).examples["a"].dtype)


POPULATIONS = {
    "no clients": says(lambda: fcojax.from_clients([]), "the population has no clients; pass at"),
    "nothing": says(lambda: fcojax.from_clients(None), "clients is None; pass a list"),
    "a number": says(lambda: fcojax.from_clients(3), "clients is 3; pass a list"),
    "one client alone": says(lambda: fcojax.from_clients(CLIENTS[0]), "pass a list"),
    "an array": says(lambda: fcojax.from_clients(np.ones((2, 3))), "pass a list"),
    "a generator": gives(lambda: fcojax.from_clients(c for c in CLIENTS).num_clients, 2),
    "a tuple": gives(lambda: fcojax.from_clients(tuple(CLIENTS)).num_clients, 2),
    "clients without fields": says(lambda: fcojax.from_clients([{}]), "have no arrays; pass"),
    "clients of nothing": says(lambda: fcojax.from_clients([None]), "have no arrays; pass"),
    "lists as rows": says(lambda: clients([1.0, 2.0]), "field a.0 of client 0 is 1.0; pass arrays"),
    "a number as rows": says(lambda: clients(1.0), "field a of client 0 is 1.0; pass arrays, rows"),
    "a string as rows": says(lambda: clients("ab"), "field a of client 0 is 'ab'; pass arrays"),
    "an array without rows": says(lambda: clients(np.array(1.0)), "pass arrays, rows first"),
    "no examples": says(lambda: clients(np.ones(2), np.ones(0)), "fields of client 1 have"),
    "fields of two lengths": says(
        lambda: fcojax.from_clients([{"x": np.ones(2), "y": np.ones(3)}]),
        "the fields of client 0 have {'x': 2, 'y': 3} rows; all need the same number",
    ),
    "clients of two shapes": says(
        lambda: clients(np.ones((1, 2)), np.ones((1, 3))), "field a has rows of shapes [(2,), (3,)]"
    ),
    "clients of two structures": says(
        lambda: fcojax.from_clients([{"a": np.ones(1)}, {"b": np.ones(1)}]), "differ in their fiel"
    ),
    "strings as examples": says(
        lambda: clients(np.array(["a"])), "field a has dtype <U1; pass num"
    ),
    "objects as examples": says(lambda: clients(np.array([None])), "field a has dtype object"),
    "dates as examples": says(
        lambda: clients(np.array(["2020-01-01"], "datetime64[D]")), "field a has dtype datetime64"
    ),
    "complex examples": gives(lambda: dtype_of(np.array([1j])), "complex128"),
    "an example that is NaN": says(
        lambda: clients(np.ones(2), np.array([1.0, np.nan])),
        "field a of client 1 is not finite in its row 1; clean the data",
    ),
    "an infinite example": says(lambda: clients(np.array([np.inf])), "is not finite in its row 0"),
    "an integer too large for int32": says(
        in_float32(lambda: clients(np.array([1, 2**40]))),
        "field a of client 0 is 1099511627776 in its row 1, out of the range of int32",
    ),
    "an integer too small for int32": says(
        in_float32(lambda: clients(np.array([-(2**40)]))), "field a of client 0 is -1099511627776"
    ),
    "a float too large for float32": says(
        in_float32(lambda: clients(np.ones(3), np.array([1.0, 1e300]))),
        "field a of client 1 is 1e+300 in its row 1, out of the range of float32",
    ),
    "floats too small for float32": says(
        in_float32(lambda: clients(np.full(2, 1e-60))), "field a is at most 1e-60 in size"
    ),
    "a large integer in int64": gives(
        lambda: clients(np.array([2**40])).examples["a"].tolist(), [2**40]
    ),
    "a large float in float64": gives(
        lambda: clients(np.array([1e300])).examples["a"].tolist(), [1e300]
    ),
    "a large integer that fits": gives(
        in_float32(lambda: clients(np.array([2**31 - 1])).examples["a"].tolist()), [2**31 - 1]
    ),
    "truth values": gives(lambda: dtype_of(np.array([True])), "bool"),
    "bytes": gives(lambda: dtype_of(np.array([255], np.uint8)), "uint8"),
    "halves": gives(lambda: dtype_of(np.array([0.5], np.float16)), "float16"),
    "arrays of JAX's": gives(lambda: dtype_of(jnp.ones(2)), "float64"),
    "a large integer in rows": says(
        in_float32(lambda: fcojax.from_rows({"a": np.array([2**40, 0])}, [1, 1])), "range of int32"
    ),
}

SIZES = {
    "no sizes": says(lambda: rows(None), "sizes is None; pass one count per client"),
    "one number": says(lambda: rows(3), "sizes has shape (); pass one count per client"),
    "an empty list": says(lambda: rows([]), "sizes has shape (0,)"),
    "a matrix": says(lambda: rows([[1, 2]]), "sizes has shape (1, 2)"),
    "a ragged matrix": says(lambda: rows([[1], [1, 1]]), "pass one count per client"),
    "fractional sizes": says(lambda: rows([1.5, 1.5]), "sizes are [1.5, 1.5]; pass whole numbers"),
    "sizes of NaN": says(lambda: rows([np.nan, 3]), "pass whole numbers"),
    "sizes as strings": says(lambda: rows(["1", "2"]), "sizes are ['1', '2']; pass whole numbers"),
    "sizes as truth values": says(lambda: rows([True, True]), "pass whole numbers"),
    "sizes as whole floats": gives(lambda: rows([1.0, 2.0]).sizes.tolist(), [1, 2]),
    "a client without rows": says(lambda: rows([3, 0]), "client 1 has 0 examples; every client"),
    "a client of fewer than none": says(lambda: rows([4, -1]), "client 1 has -1 examples"),
    "too few": says(lambda: rows([1, 1]), "the sizes add up to 2 but there are 3 rows"),
    "too many": says(lambda: rows([2, 2]), "the sizes add up to 4 but there are 3 rows"),
    "sizes beyond all rows": says(lambda: rows([2**62, 2**62]), "but there are 3 rows"),
    "nothing as rows": says(lambda: fcojax.from_rows(None, [1]), "have no arrays; pass"),
    "a list as rows": says(lambda: fcojax.from_rows([1.0], [1]), "pass arrays, rows first"),
}

WEIGHTS = {
    "weights by a wrong name": says(
        lambda: clients(np.ones(1), weights="size"), 'weights is "size"; pass None, "examples"'
    ),
    "too few weights": says(
        lambda: clients(np.ones(1), np.ones(1), weights=[1.0]), "weights has shape (1,) but there"
    ),
    "a negative weight": says(
        lambda: clients(np.ones(1), np.ones(1), weights=[1.0, -1.0]), "weights must be finite, not"
    ),
    "no weight at all": says(lambda: clients(np.ones(1), weights=[0.0]), "not all zero; pass"),
    "a weight that is NaN": says(lambda: clients(np.ones(1), weights=[np.nan]), "must be finite"),
    "a weight of None": says(lambda: clients(np.ones(1), weights=[None]), "must be finite"),
    "weights as strings": says(
        lambda: clients(np.ones(1), weights=["1"]), "weights is ['1']; pass None"
    ),
    "weights by client": says(
        lambda: clients(np.ones(1), weights={0: 1.0}), "weights is {0: 1.0}; pass None"
    ),
    "a power that is NaN": says(
        lambda: clients(np.ones(1), weights=np.nan), "weights is nan; pass"
    ),
    "a power beyond all floats": says(
        lambda: clients(np.ones(9), weights=1000.0), "weights must be finite"
    ),
    "a negative power": gives(
        lambda: clients(np.ones(1), np.ones(2), weights=-1).weights.tolist(), [1.0, 0.5]
    ),
    "tiny weights": gives(in_float32(lambda: weighed([1e-60, 3e-60])), 2.5),
    "huge weights": gives(in_float32(lambda: weighed([3e38, 3e38])), 2.0),
    "weights out of float32": gives(in_float32(lambda: weighed([1e60, 3e60])), 2.5),
    "tiny weights in float64": gives(lambda: weighed([1e-60, 3e-60]), 2.5),
    "the largest weights there are": gives(lambda: weighed([1e308, 1e308]), 2.0),
    "weights that nothing spans": says(
        in_float32(lambda: weighed([1e-60, 1.0])), "weight of client 0 is 1e-60 times the largest"
    ),
    "a weight of zero": gives(lambda: weighed([0, 3]), 3.0),
    "weights of truth values": gives(lambda: weighed([True, True]), 2.0),
}

IDS = {
    "a name twice": says(
        lambda: clients(np.ones(1), np.ones(1), ids=["a", "a"]), "id a occurs twice; every client"
    ),
    "too few names": says(
        lambda: clients(np.ones(1), np.ones(1), ids=["a"]), "ids has shape (1,) but there are 2"
    ),
    "a number for names": says(lambda: clients(np.ones(1), ids=5), "ids has shape ()"),
    "letters for names": says(lambda: clients(np.ones(1), np.ones(1), ids="ab"), "ids has shape ("),
    "fractional names": says(lambda: clients(np.ones(1), ids=[0.5]), "ids have dtype float64; pas"),
    "infinite names": says(lambda: clients(np.ones(1), ids=[np.inf]), "ids have dtype float64"),
    "names that are None": says(lambda: clients(np.ones(1), ids=[None]), "ids have dtype object"),
    "ragged names": says(
        lambda: clients(np.ones(1), np.ones(1), ids=[[1], [1, 2]]), "pass whole numbers or strings"
    ),
    "whole floats as names": gives(
        lambda: clients(np.ones(1), np.ones(2), ids=[2.0, 1.0]).ids.tolist(), [1, 2]
    ),
    "names in another order": gives(
        lambda: clients(np.ones(1), np.ones(2), ids=["b", "a"]).sizes.tolist(), [2, 1]
    ),
    "members that are not there": says(
        lambda: fcojax.from_clients(CLIENTS).select([2]), "members are between 2 and 2 but there"
    ),
    "half a member": says(lambda: fcojax.from_clients(CLIENTS).select([0.5]), "pass numbers from"),
    "nobody at all": says(lambda: fcojax.from_clients(CLIENTS).select([]), "pass at least one"),
    "an id that was dropped": says(
        lambda: jax.tree.map(lambda leaf: leaf, fcojax.from_clients(CLIENTS)).select([0]), "no ids"
    ),
}  # fmt: skip

TABLE = {
    f"{place}: {name}": odd
    for place, table in (
        ("clients", POPULATIONS), ("sizes", SIZES), ("weights", WEIGHTS), ("ids", IDS)
    )
    for name, odd in table.items()
}  # fmt: skip
