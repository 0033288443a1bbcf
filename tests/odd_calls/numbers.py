"""Odd grids, schedules and hyperparameter types."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms
from fcojax.types import Scalar
from tests.odd_calls.table import (
    FED_AVG,
    RATES,
    STEPS,
    OwnNumbers,
    gives,
    in_float32,
    own,
    says,
    told,
)


class Bare(NamedTuple):
    client_lr: Scalar
    momentum: Scalar


def rates(grid):
    return grid.client_lr.tolist()


GRIDS = {
    "a number for a list": says(
        lambda: fcojax.product(RATES, client_lr=0.1), "client_lr is 0.1; pass a list of values, as"
    ),
    "no values": says(lambda: fcojax.product(RATES, client_lr=[]), "client_lr has no values; pass"),
    "no list": says(lambda: fcojax.product(RATES, client_lr=None), "client_lr is None; pass a lis"),
    "a string of values": says(lambda: fcojax.product(RATES, client_lr="12"), "client_lr is '12'"),
    "strings as values": says(lambda: fcojax.product(RATES, client_lr=["1"]), "client_lr is '1'"),
    "a value of None": says(lambda: fcojax.product(RATES, client_lr=[None]), "client_lr is None"),
    "a list in the list": says(
        lambda: fcojax.product(RATES, client_lr=[[0.1, 0.2]]), "client_lr has shape (2,) where ()"
    ),
    "one below zero": says(lambda: fcojax.product(RATES, client_lr=[-0.1]), "client_lr is -0.1"),
    "a value too small for float32": says(
        in_float32(lambda: fcojax.product(RATES, client_lr=[1e-50])), "client_lr is 1e-50"
    ),
    "a field that is not there": says(
        lambda: fcojax.product(RATES, lr=[0.1]), "Rates has no field lr; its fields are ['client_lr"
    ),
    "a field that is missing": says(
        lambda: fcojax.product(Bare, client_lr=[0.1]), "Bare needs momentum, which has no default"
    ),
    "a required field that is given": gives(
        lambda: fcojax.product(Bare, client_lr=[0.1], momentum=[0.5]).momentum.tolist(), [0.5]
    ),
    "a factory for its numbers": says(
        lambda: fcojax.product(algorithms.fed_avg, client_lr=[0.1]), "fed_avg.Hparams"
    ),
    "an algorithm for its numbers": says(
        lambda: fcojax.product(FED_AVG, client_lr=[0.1]), "pass the type of an algorithm's hyperp"
    ),
    "numbers for their type": says(
        lambda: fcojax.product(RATES(0.1), client_lr=[0.1]), "pass the type of an algorithm's hyp"
    ),
    "nothing for the type": says(
        lambda: fcojax.product(None, client_lr=[0.1]), "hparams_type is None; pass the type"
    ),
    "a value twice": gives(lambda: rates(fcojax.product(RATES, client_lr=[0.1, 0.1])), [0.1, 0.1]),
    "values of numpy's": gives(
        lambda: rates(fcojax.product(RATES, client_lr=np.array([0.1, 0.2]))), [0.1, 0.2]
    ),
    "values of JAX's": gives(
        lambda: rates(fcojax.product(RATES, client_lr=jnp.array([0.1, 0.2]))), [0.1, 0.2]
    ),
    "a generator of values": gives(
        lambda: rates(fcojax.product(RATES, client_lr=(x / 10 for x in (1, 2)))), [0.1, 0.2]
    ),
    "no fields": gives(lambda: rates(fcojax.product(RATES)), [0.01]),
    "integers of one's own": gives(
        lambda: str(fcojax.product(OwnNumbers, num_times=[1, 2]).num_times.dtype), "int64"
    ),
    "integers for a rate": gives(
        lambda: str(fcojax.product(RATES, client_lr=[1, 2]).client_lr.dtype), "float64"
    ),
    "schedules as values": gives(
        lambda: fcojax.product(
            RATES, client_lr=[fcojax.schedule([1.0, 0.5]), fcojax.schedule([2.0, 1.0])]
        ).client_lr.values.tolist(),
        [[1.0, 0.5], [2.0, 1.0]],
    ),
    "schedules among numbers": says(
        lambda: fcojax.product(RATES, client_lr=[fcojax.schedule([1.0, 0.5]), 0.1]),
        "client_lr mixes schedules and numbers; pass",
    ),
    "schedules of two lengths": says(
        lambda: fcojax.product(RATES, client_lr=[fcojax.schedule([1]), fcojax.schedule([1, 2])]),
        "client_lr has values of shapes [(1,), (2,)]; give all the same",
    ),
    "zipped: a number": says(lambda: fcojax.zipped(RATES, client_lr=0.1), "client_lr is 0.1; pass"),
    "zipped: no values": says(lambda: fcojax.zipped(RATES, client_lr=[]), "client_lr has no value"),
    "zipped: no fields": says(lambda: fcojax.zipped(RATES), "give at least one field its values"),
    "zipped: two lengths": says(
        lambda: fcojax.zipped(RATES, client_lr=[0.1], server_lr=[1, 2]), "give every field the same"
    ),
    "zipped: a generator": gives(
        lambda: rates(fcojax.zipped(RATES, client_lr=(x for x in (0.1, 0.2)))), [0.1, 0.2]
    ),
    "zipped: a field that is not there": says(
        lambda: fcojax.zipped(RATES, lr=[0.1]), "Rates has no field lr"
    ),
    "zipped: a factory": says(
        lambda: fcojax.zipped(algorithms.fed_avg, client_lr=[0.1]), "fed_avg.Hparams"
    ),
    "drawn: no points": says(
        lambda: fcojax.random_draws(RATES, 0, 0, client_lr=(0.1, 1)), "num is 0; pass a whole numbe"
    ),
    "drawn: half a point": says(lambda: fcojax.random_draws(RATES, 0.5, 0), "num is 0.5"),
    "drawn: points of numpy's": gives(
        lambda: rates(fcojax.random_draws(RATES, np.int64(2), 0, client_lr=0.1)), [0.1, 0.1]
    ),
    "drawn: a seed below zero": says(
        lambda: fcojax.random_draws(RATES, 1, -1), "seed is -1; pass a whole number of at least 0"
    ),
    "drawn: a seed as a string": says(lambda: fcojax.random_draws(RATES, 1, "a"), "seed is 'a'"),
    "drawn: a range backwards": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=(1.0, 0.1)), "client_lr has range (1.0, "
    ),
    "drawn: a range from zero": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=(0.0, 0.1)), "with 0 < low <= high"
    ),
    "drawn: a range to infinity": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=(0.1, np.inf)), "with 0 < low <= high"
    ),
    "drawn: three ends": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=(0.1, 0.2, 0.3)), "pass a number, or two"
    ),
    "drawn: no ends": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=()), "pass a number, or two with"
    ),
    "drawn: ends as strings": says(
        lambda: fcojax.random_draws(RATES, 1, 0, client_lr=("0.1", "1")), "pass a number, or two"
    ),
    "drawn: a negative number": gives(
        lambda: fcojax.random_draws(OwnNumbers, 2, 0, shift=-1.0).shift.tolist(), [-1.0, -1.0]
    ),
    "drawn: a vector's default": gives(
        lambda: list(fcojax.random_draws(OwnNumbers, 3, 0, client_lr=(0.1, 1)).direction.shape),
        [3, 2],
    ),
    "drawn: an integer's default": gives(
        lambda: str(fcojax.random_draws(OwnNumbers, 3, 0, shift=1.0).num_times.dtype), "int64"
    ),
    "spaced: from zero": says(lambda: fcojax.log_spaced(0, 1, 3), "low is 0, high 1, num 3; pass"),
    "spaced: backwards": says(lambda: fcojax.log_spaced(1, 0.1, 3), "pass 0 < low <= high"),
    "spaced: no values": says(lambda: fcojax.log_spaced(0.1, 1, 0), "num is 0; pass a whole numbe"),
    "spaced: half a value": says(lambda: fcojax.log_spaced(0.1, 1, 2.5), "num is 2.5"),
    "spaced: strings": says(lambda: fcojax.log_spaced("0.1", 1, 2), "low is '0.1'"),
    "spaced: to infinity": says(lambda: fcojax.log_spaced(0.1, np.inf, 2), "high inf"),
    "spaced: one value": gives(lambda: fcojax.log_spaced(0.1, 1, 1), [0.1]),
    "spaced: counted by numpy": gives(lambda: fcojax.log_spaced(0.1, 10, np.int8(3)), [0.1, 1, 10]),
}  # fmt: skip

SCHEDULES = {
    "a number": says(lambda: fcojax.schedule(0.1), "the schedule has shape (); pass a value for e"),
    "no values": says(lambda: fcojax.schedule([]), "the schedule has shape (0,)"),
    "nothing": says(lambda: fcojax.schedule(None), "the schedule is None; pass numbers"),
    "a string": says(lambda: fcojax.schedule("fast"), "the schedule is 'fast'; pass numbers"),
    "strings": says(lambda: fcojax.schedule(["1", "2"]), "the schedule is ['1', '2']; pass number"),
    "ragged values": says(lambda: fcojax.schedule([[1], [1, 2]]), "pass numbers"),
    "a schedule of a schedule": says(
        lambda: fcojax.schedule(fcojax.schedule([1.0])), "is a schedule already; pass it as it is"
    ),
    "a function alone": says(lambda: fcojax.schedule(lambda r: r), "needs num_rounds as well"),
    "a function of no rounds": says(lambda: fcojax.schedule(lambda r: r, 0), "num_rounds is 0"),
    "a function of half": says(lambda: fcojax.schedule(lambda r: r, 0.5), "num_rounds is 0.5"),
    "a function of strings": says(lambda: fcojax.schedule(lambda r: "1", 2), "the schedule's func"),
    "a function of Python's numbers": gives(
        lambda: fcojax.schedule(lambda r: 0.5, 2).values.tolist(), [0.5, 0.5]
    ),
    "values and a number of rounds": says(lambda: fcojax.schedule([1.0], 1), "num_rounds goes wit"),
    "integers": gives(lambda: fcojax.schedule([1, 2]).values.tolist(), [1, 2]),
}  # fmt: skip

TYPES = {
    "extended: a factory": says(
        lambda: fcojax.extended(algorithms.fed_avg, "More", clip=1.0), "fed_avg.Hparams"
    ),
    "extended: numbers": says(
        lambda: fcojax.extended(RATES(0.1), "More", clip=1.0), "pass the type of an algorithm's"
    ),
    "extended: a field twice": says(
        lambda: fcojax.extended(RATES, "More", client_lr=1.0), "has a field client_lr already; choo"
    ),
    "extended: no name": says(lambda: fcojax.extended(RATES, 3, clip=1.0), "name is 3; pass"),
    "extended: a name of two words": says(
        lambda: fcojax.extended(RATES, "More numbers", clip=1.0), "name is 'More numbers'; pass"
    ),
    "extended: a field below": says(
        lambda: fcojax.extended(RATES, "More", _clip=1.0), "field _clip; choose a name"
    ),
    "extended: a string": says(
        lambda: told(hparams=fcojax.extended(RATES, "More", clip="1")(0.5)), "clip is '1'; pass a n"
    ),
    "extended: nothing more": gives(lambda: fcojax.extended(RATES, "Same")(0.5).server_lr, 1.0),
    "extended: in a grid": gives(
        lambda: fcojax.product(fcojax.extended(RATES, "More", clip=1.0), clip=[1, 2]).clip.tolist(),
        [1.0, 2.0],
    ),
    "an algorithm that reads more": gives(
        lambda: told(
            algorithm=own(x=lambda h: h.clip),
            hparams=fcojax.extended(OwnNumbers, "More", clip=-2.0)(), plan=STEPS,
        )[1]["x"],
        [-2.0],
    ),
}  # fmt: skip

TABLE = {
    f"{place}: {name}": odd
    for place, rows in (("grid", GRIDS), ("schedule", SCHEDULES), ("type", TYPES))
    for name, odd in rows.items()
}
