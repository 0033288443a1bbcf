"""Calls that would run and be wrong are refused, in one line that names the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, problems, transforms
from fcojax import grid as grids
from fcojax.transforms import euclidean, group_l2, l1, named
from tests.odd_calls.federation import (
    CLIENTS,
    DATA,
    FED_AVG,
    GRID,
    KEY,
    KEYS,
    RATES,
    STEPS,
    ZERO,
    Custom,
    advanced,
    clients,
    custom,
    in_float32,
    planned,
    ran,
    rows,
    solved,
    squares,
    started,
    swept,
)


def refused(call, word):
    """One line, with the word in it."""
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    message = str(raised.value)
    assert word in message and "\n" not in message, message


def donated():
    state = started()
    advanced(state=state, donate=True)
    return state


# What an annotation cannot say: one refusal of each rule.

PROBLEM = problems.Problem(squares, DATA, None, lambda key: ZERO)
OTHER = algorithms.fed_dual_avg.Hparams
CAPITALS = fcojax.from_rows({"X": np.ones((2, 3)), "y": np.array([0, 1])}, [1, 1])
COLUMN = fcojax.from_rows({"x": np.ones(2), "y": np.array([0, 1])}, [1, 1])


def changed(**functions):
    return ran(algorithm=FED_AVG._replace(**functions))


def of_loss(loss):
    return ran(algorithm=algorithms.fed_avg(loss))


def of_subtree(penalty, predicate):
    return transforms.on_subtree(penalty, predicate).value({"w": jnp.ones(2), "bias": ZERO}, 1.0)


FACTORIES = {
    "a factory in place of an algorithm": (lambda: ran(algorithm=algorithms.fed_avg), "fed_avg("),
    "a problem as loss": (lambda: algorithms.fed_avg(PROBLEM), "function"),
    "a loss that is summed": (
        lambda: of_loss(lambda w, rows: jnp.sum(squares(w, rows))),
        "per example",
    ),
    "a loss with its auxiliary results": (
        lambda: of_loss(lambda w, rows: (squares(w, rows), w)),
        "a tuple",
    ),
    "a loss of integers": (lambda: of_loss(lambda w, rows: rows["a"].astype(int)), "int64"),
    "a mirror for a penalty": (
        lambda: algorithms.fed_avg_subgradient(squares, euclidean(l1())),
        "Mirror",
    ),
    "unequal steps for ProxSkip": (
        lambda: ran(
            algorithm=algorithms.prox_skip(squares),
            hparams=algorithms.prox_skip.Hparams(),
            plan=fcojax.local_epochs(1, 1),
        ),
        "steps",
    ),
    "a proximal term without its strength": (
        lambda: algorithms.fed_opt(squares, proximal_term=True),
        "prox_scale",
    ),
    "a server that changes its shape": (
        lambda: changed(server_update=lambda h, s, u, c, k: jnp.stack([s, u])),
        "server_update",
    ),
    "clients that change their shape": (
        lambda: changed(
            client_update=lambda h, m, client, local, key: algorithms.ClientResult(m, m, {})
        ),
        "client_update",
    ),
    "a client metric with a count's name": (
        lambda: ran(algorithm=custom(lost=lambda h: ZERO)),
        "lost",
    ),
    "labels as a list of numbers": (
        lambda: group_l2(labels=[0, 0, 1]).value(jnp.ones(3), 1.0),
        "labels",
    ),
    "labels of a subtree that are no list": (
        lambda: of_subtree(group_l2(labels=np.array([0, 0])), named("w")),
        "list",
    ),
    "a negative strength": (lambda: l1().prox(ZERO, 1.0, -1.0), "scale"),
    "a negative step": (lambda: l1().prox(ZERO, -1.0, 1.0), "step"),
    "a negative weight": (lambda: transforms.weighted_l1(np.array([-1.0])), "weight"),
    "an empty box": (lambda: transforms.box(1.0, 0.0), "empty"),
    "half a nonzero": (lambda: transforms.l0_ball(1.5), "1.5"),
    "a predicate that returns another": (
        lambda: of_subtree(l1(), lambda path, leaf: named("kernel")),
        "return",
    ),
    "no entries for unit columns": (
        lambda: transforms.oblique().project(jnp.zeros((0, 2))),
        "(0, 2)",
    ),
    "places for an array of clients": (
        lambda: fcojax.coin_flips(0.1).size(np.ones(2)),
        "num_clients",
    ),
    "a point that is no array": (lambda: l1().prox("text", 1.0, 1.0), "text"),
    "fewer than no examples": (
        lambda: fcojax.selection.bic().scores(np.ones(1), np.ones(1), -1, 2),
        "num_examples",
    ),
    "facts of no compressor": (lambda: fcojax.uploads.facts(int, ZERO), "compressor"),
    "costs of no subject": (lambda: fcojax.check.facts({}), "subject"),
    "a budget of an uplink by name": (
        lambda: fcojax.privacy.epsilon(fcojax.Plan(STEPS, uplink="gaussian"), 10, 1, 1e-5),
        "noise that is accounted",
    ),
    "other fields": (lambda: problems.logistic(CAPITALS), "fields"),
    "a column of features": (lambda: problems.logistic(COLUMN), "shape"),
}

HPARAMS = {
    "of another algorithm": (lambda: ran(hparams=OTHER()), "Hparams"),
    "a rate of zero": (lambda: ran(hparams=RATES(0.0)), "client_lr"),
    "a rate of NaN": (lambda: ran(hparams=RATES(np.nan)), "client_lr"),
    "a rate that vanishes in float32": (in_float32(lambda: ran(hparams=RATES(1e-50))), "client_lr"),
    "a rate that overflows float32": (in_float32(lambda: ran(hparams=RATES(1e50))), "client_lr"),
    "a rate of shape (1,)": (lambda: ran(hparams=RATES([0.1])), "shape"),
    "a list of rates": (lambda: ran(hparams=RATES([0.1, 0.2]), num_rounds=2), "schedule"),
    "a grid": (lambda: ran(hparams=GRID, num_rounds=2), "sweep"),
    "a short schedule": (
        lambda: ran(hparams=RATES(fcojax.schedule([0.5])), num_rounds=2),
        "schedule",
    ),
    "a schedule of vectors": (lambda: ran(hparams=RATES(fcojax.schedule([[0.5, 0.5]]))), "shape"),
    "an integer beyond int32": (
        in_float32(lambda: ran(algorithm=custom(), hparams=Custom(num_times=2**40))),
        "num_times",
    ),
    "no points": (lambda: swept(grid=RATES(np.ones(0), np.ones(0))), "points"),
    "columns of two lengths": (lambda: swept(grid=RATES(np.ones(2), np.ones(3))), "same"),
    "numbers for a grid": (lambda: swept(grid=RATES(0.1)), "grid"),
    "one schedule for a grid": (
        lambda: swept(grid=GRID._replace(server_lr=fcojax.schedule([1.0, 1.0]))),
        "schedule",
    ),
    "an unknown field": (lambda: grids.product(RATES, lr=[0.1]), "lr"),
    "no values": (lambda: grids.product(RATES, client_lr=[]), "client_lr"),
    "schedules among numbers": (
        lambda: grids.product(RATES, client_lr=[fcojax.schedule([1.0, 0.5]), 0.1]),
        "mixes",
    ),
    "schedules of two lengths": (
        lambda: grids.product(RATES, client_lr=[fcojax.schedule([1]), fcojax.schedule([1, 2])]),
        "shapes",
    ),
    "zipped values of two lengths": (
        lambda: grids.zipped(RATES, client_lr=[0.1], server_lr=[1, 2]),
        "same",
    ),
    "a range backwards": (
        lambda: grids.random_draws(RATES, 1, 0, client_lr=(1.0, 0.1)),
        "client_lr",
    ),
    "values spaced backwards": (lambda: grids.log_spaced(1, 0.1, 3), "low"),
    "a schedule of a schedule": (lambda: fcojax.schedule(fcojax.schedule([1.0])), "schedule"),
    "a schedule of unknown length": (lambda: fcojax.schedule(lambda r: r), "num_rounds"),
    "a field twice": (lambda: fcojax.extended(RATES, "More", client_lr=1.0), "client_lr"),
}

RUNS = {
    "three points and three seeds for two devices": (
        lambda: started(
            hparams=grids.product(RATES, client_lr=[0.1, 0.2, 0.3]),
            key=jax.random.split(jax.random.key(0), 3),
            data=fcojax.devices.shard_clients(DATA, fcojax.devices.device_mesh(sweep=2)),
        ),
        "3 points and 3 seeds for 2 devices",
    ),
    "a leaf of integers": (lambda: ran(params={"w": ZERO, "n": np.arange(2)}), "params.n"),
    "an infinite start": (lambda: ran(params={"w": np.array([1.0, np.inf])}), "params.w"),
    "nothing to start from": (lambda: ran(params={}), "params"),
    "a start with a mask": (lambda: ran(params=np.ma.masked_array(0.0, True)), "params"),
    "a key to start from": (lambda: ran(params=KEY), "params"),
    "an old key": (lambda: ran(key=jax.random.PRNGKey(0)), "PRNGKey"),
    "several keys": (lambda: ran(key=KEYS), "key"),
    "one key for a sweep": (lambda: swept(keys=KEY), "keys"),
    "no keys": (lambda: swept(keys=KEYS[:0]), "key"),
    "no keys to start from": (lambda: started(hparams=GRID, key=KEYS[:0]), "key"),
    "a donated state": (lambda: advanced(state=donated()), "donated"),
    "a certificate that is a number": (lambda: solved(lambda h, w, d: w), "dictionary"),
    "a certificate without a violation": (lambda: solved(lambda h, w, d: {"gap": w}), "violation"),
    "a vector of violations": (
        lambda: solved(lambda h, w, d: {"violation": jnp.ones(3)}),
        "one number",
    ),
    "a certificate of two arguments": (lambda: solved(lambda w, d: w), "certificate"),
    "integers to solve from": (
        lambda: solved(fcojax.kkt(squares, transforms.zero()), params=np.array(0)),
        "params",
    ),
    "evaluations that do not fit": (lambda: ran(num_rounds=3, eval_every=2), "eval_every"),
    "a measure with a count's name": (
        lambda: ran(observe=lambda h, w, c: {"dropped": w}),
        "dropped",
    ),
    "measures that are no dictionary": (lambda: ran(observe=lambda h, w, c: w), "dictionary"),
    "a model as state": (lambda: advanced(state=ZERO), "state"),
    "the state of a sweep": (lambda: advanced(state=started(key=KEYS, hparams=GRID)), "grid"),
    "the state of another algorithm": (
        lambda: advanced(
            algorithm=algorithms.fed_dual_avg(squares, euclidean(l1())), hparams=OTHER(0.5)
        ),
        "state",
    ),
}

PLANS = {
    "a client without steps": (lambda: fcojax.local_steps([1, 0]), "client 1"),
    "steps of other clients": (lambda: ran(plan=fcojax.local_steps([1, 1, 1])), "3"),
    "fewest above most": (lambda: fcojax.local_steps(2, fewest=3), "fewest"),
    "more examples than there are": (lambda: ran(plan=fcojax.local_steps(1, 3)), "batch_size"),
    "all examples with replacement": (lambda: fcojax.local_steps(1, replace=True), "replace"),
    "more clients than there are": (
        lambda: planned(cohort=fcojax.uniform_cohort(cohort_size=3)),
        "cohort_size",
    ),
    "losing twice": (
        lambda: fcojax.dropout(fcojax.dropout(fcojax.everyone(), 0.1), 0.1),
        "dropout",
    ),
    "losing what all must send": (
        lambda: ran(
            algorithm=FED_AVG._replace(needs_everyone=True),
            plan=fcojax.Plan(STEPS, fcojax.dropout(fcojax.everyone(), 0.1)),
        ),
        "lose",
    ),
    "a sample where all are needed": (
        lambda: ran(
            algorithm=algorithms.fed_pd(squares),
            hparams=algorithms.fed_pd.Hparams(),
            plan=fcojax.Plan(STEPS, fcojax.uniform_cohort(cohort_size=1)),
        ),
        "everyone",
    ),
    "an uplink where uploads must arrive whole": (
        lambda: ran(
            algorithm=algorithms.fed_gd(squares),
            hparams=algorithms.fed_gd.Hparams(0.1),
            plan=fcojax.Plan(STEPS, uplink=fcojax.uploads.compressed(fcojax.uploads.sign())),
        ),
        "uplink=None",
    ),
    "more entries than an upload has": (
        lambda: ran(
            plan=fcojax.Plan(STEPS, uplink=fcojax.uploads.compressed(fcojax.uploads.top_k(9))),
        ),
        "k is 9",
    ),
    "more groups than clients": (lambda: planned(cohort=fcojax.cyclic(num_groups=3)), "groups"),
    "more than a group has": (
        lambda: planned(cohort=fcojax.cyclic(num_groups=2, cohort_size=2)),
        "group",
    ),
    "nobody in any round": (lambda: fcojax.from_trace([]), "round"),
    "a trace of halves": (lambda: fcojax.from_trace(np.full((2, 2), 0.5)), "trace"),
    "a client twice in a round": (lambda: fcojax.from_trace([[0, 0]]), "distinct"),
    "a client below zero": (lambda: fcojax.from_trace([[-1]]), "-1"),
    "a trace of other clients": (
        lambda: planned(cohort=fcojax.from_trace(np.ones((2, 3)))),
        "3 clients",
    ),
    "a client that is not there": (lambda: planned(cohort=fcojax.from_trace([[2]])), "client 2"),
}

POPULATIONS = {
    "nothing": (lambda: fcojax.from_clients(None), "clients"),
    "clients by name": (lambda: fcojax.from_clients({"ann": CLIENTS[0]}), "one pytree for each"),
    "no clients": (lambda: fcojax.from_clients([]), "clients"),
    "a client without rows": (lambda: clients(np.ones(2), np.ones(0)), "client 1"),
    "fields of two lengths": (
        lambda: fcojax.from_clients([{"x": np.ones(2), "y": np.ones(3)}]),
        "rows",
    ),
    "an example of NaN": (lambda: clients(np.ones(2), np.array([1.0, np.nan])), "client 1"),
    "an integer beyond int32": (in_float32(lambda: clients(np.array([1, 2**40]))), "int32"),
    "a float beyond float32": (in_float32(lambda: clients(np.array([1.0, 1e300]))), "float32"),
    "floats that vanish in float32": (in_float32(lambda: clients(np.full(2, 1e-60))), "1e-60"),
    "fractional sizes": (lambda: rows([1.5, 1.5]), "sizes"),
    "masked sizes": (lambda: rows(np.ma.masked_array([1, 2], [1, 0])), "client 0"),
    "truth values as sizes": (lambda: rows([True, True]), "sizes"),
    "a size of zero": (lambda: rows([3, 0]), "client 1"),
    "sizes that add up to less": (lambda: rows([1, 1]), "sizes"),
    "sizes that overflow": (lambda: rows([2**62, 2**62]), "sizes"),
    "an unknown kind of weights": (lambda: clients(np.ones(1), weights="size"), "weights"),
    "too few weights": (lambda: clients(np.ones(1), np.ones(1), weights=[1.0]), "weights"),
    "no weight at all": (lambda: clients(np.ones(1), weights=[0.0]), "zero"),
    "a weight that float32 cannot resolve": (
        in_float32(lambda: clients(np.ones(1), np.ones(1), weights=[1e-60, 1.0])),
        "client 0",
    ),
    "an id twice": (lambda: clients(np.ones(1), np.ones(1), ids=["a", "a"]), "twice"),
    "a member that is not there": (lambda: DATA.select([2]), "members"),
    "no members": (lambda: DATA.select([]), "one"),
    "ids that were dropped": (
        lambda: jax.tree.map(lambda leaf: leaf, fcojax.from_clients(CLIENTS)).select([0]),
        "ids",
    ),
}

TABLE = {
    f"{place}: {name}": row
    for place, table in (
        ("factory", FACTORIES),
        ("hparams", HPARAMS),
        ("run", RUNS),
        ("plan", PLANS),
        ("population", POPULATIONS),
    )
    for name, row in table.items()
}


@pytest.mark.parametrize("name", TABLE)
def test_what_would_run_and_be_wrong_is_refused(name):
    refused(*TABLE[name])
