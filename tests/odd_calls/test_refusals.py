"""Calls that would run and give a wrong result raise an error that names the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, datasets, problems, transforms
from fcojax import grid as grids
from fcojax.transforms import l1
from fcojax.transforms.calculus.compose import translated
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


# Rules that annotations cannot express, with one refusal of each.

CAPITALS = fcojax.from_rows({"X": np.ones((2, 3)), "y": np.array([0, 1])}, [1, 1])
COUNTS = fcojax.from_rows({"x": np.ones((2, 1)), "y": np.array([1.0, 3.5])}, [1, 1])
PRIVATE = fcojax.Plan(STEPS, fcojax.coin_flips(0.1), uploads=fcojax.privacy.gaussian(1.0, 1.0))
SIGN = fcojax.uploads.compressed(fcojax.uploads.sign())
COLUMN = fcojax.from_rows({"x": np.ones(2), "y": np.array([0, 1])}, [1, 1])


def changed(**functions):
    return ran(algorithm=FED_AVG._replace(**functions))


def of_loss(loss):
    return ran(algorithm=algorithms.fed_avg(loss))


def whole(**plan):
    given = {"plan": fcojax.Plan(STEPS, **plan), "hparams": algorithms.fed_gd.Hparams(0.1)}
    return ran(algorithm=algorithms.fed_gd(squares), **given)


TABLE = {
    "a factory in place of an algorithm": (lambda: ran(algorithm=algorithms.fed_avg), "Algorithm"),
    "a loss that is summed": (
        lambda: of_loss(lambda w, rows: jnp.sum(squares(w, rows))),
        "per example",
    ),
    "a loss of integers": (lambda: of_loss(lambda w, rows: rows["a"].astype(int)), "int64"),
    "unequal steps for ProxSkip": (
        lambda: ran(
            algorithm=algorithms.prox_skip(squares),
            hparams=algorithms.prox_skip.Hparams(),
            plan=fcojax.local_epochs(1, 1),
        ),
        "steps",
    ),
    "noise beside a number of steps that a client's data decide": (
        lambda: ran(
            algorithm=algorithms.fed_dual_avg(squares, transforms.euclidean(l1())),
            hparams=algorithms.fed_dual_avg.Hparams(),
            plan=PRIVATE._replace(work=fcojax.local_epochs(1, 1)),
        ),
        "depend on the client or its data",
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
    "a plan of nothing": (lambda: planned(work=None), "plan.work"),
    "a metric beyond float32": (in_float32(lambda: transforms.quadratic(1e300)), "matrix"),
    "a shift of NaN": (lambda: translated(l1(), np.array([np.nan])), "shift"),
    "a complex start": (lambda: ran(params=1j), "params"),
    "sums modulo less than one": (
        lambda: fcojax.uploads.modular_sum(0.1, -1),
        "bits",
    ),
    "other fields": (lambda: problems.logistic(CAPITALS), "fields"),
    "a column of features": (lambda: problems.logistic(COLUMN), "shape"),
    "of another algorithm": (lambda: ran(hparams=algorithms.fed_dual_avg.Hparams()), "Hparams"),
    "a rate of zero": (lambda: ran(hparams=RATES(0.0)), "client_lr"),
    "a rate that vanishes in float32": (in_float32(lambda: ran(hparams=RATES(1e-50))), "client_lr"),
    "a rate of shape (1,)": (lambda: ran(hparams=RATES([0.1])), "shape"),
    "a grid": (lambda: ran(hparams=GRID, num_rounds=2), "sweep"),
    "a short schedule": (
        lambda: ran(hparams=RATES(fcojax.schedule([0.5])), num_rounds=2),
        "schedule",
    ),
    "a schedule of vectors": (lambda: ran(hparams=RATES(fcojax.schedule([[0.5, 0.5]]))), "shape"),
    "no points": (lambda: swept(grid=RATES(np.ones(0), np.ones(0))), "points"),
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
    "a schedule of unknown length": (lambda: fcojax.schedule(lambda r: r), "num_rounds"),
    "a field twice": (lambda: fcojax.extended(RATES, "More", client_lr=1.0), "client_lr"),
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
    "an old key": (lambda: ran(key=jax.random.PRNGKey(0)), "jax.random.key(0)"),
    "one key for a sweep": (lambda: swept(keys=KEY), "keys"),
    "no keys": (lambda: swept(keys=KEYS[:0]), "key"),
    "a certificate without a violation": (lambda: solved(lambda h, w, d: {"gap": w}), "violation"),
    "a vector of violations": (
        lambda: solved(lambda h, w, d: {"violation": jnp.ones(3)}),
        "one number",
    ),
    "evaluations that do not fit": (lambda: ran(num_rounds=3, eval_every=2), "eval_every"),
    "a measure with a count's name": (
        lambda: ran(observe=lambda h, w, c: {"dropped": w}),
        "dropped",
    ),
    "a client without steps": (lambda: fcojax.local_steps([1, 0]), "client 1"),
    "fewest above most": (lambda: fcojax.local_steps(2, fewest=3), "fewest"),
    "more examples than there are": (lambda: ran(plan=fcojax.local_steps(1, 3)), "batch_size"),
    "more clients than there are": (
        lambda: planned(cohort=fcojax.uniform_cohort(cohort_size=3)),
        "cohort_size",
    ),
    "losing what all must send": (
        lambda: ran(
            algorithm=FED_AVG._replace(facts=algorithms.Facts(needs_everyone=True)),
            plan=fcojax.Plan(STEPS, uploads=fcojax.dropout(0.1)),
        ),
        "dropout(0.1)",
    ),
    "a tolerance of minibatches": (
        lambda: ran(
            algorithm=algorithms.fed_pd(squares, solver=algorithms.local_solvers.gd(tolerance=0.1)),
            hparams=algorithms.fed_pd.Hparams(),
            plan=fcojax.local_steps(2, batch_size=1),
        ),
        "batch_size",
    ),
    "a sample where all are needed": (
        lambda: ran(
            algorithm=algorithms.fed_pd(squares),
            hparams=algorithms.fed_pd.Hparams(),
            plan=fcojax.Plan(STEPS, fcojax.uniform_cohort(cohort_size=1)),
        ),
        "everyone",
    ),
    "compression where uploads must arrive whole": (lambda: whole(uploads=SIGN), "plain mean"),
    "a median of them": (lambda: whole(aggregator=fcojax.robust.median()), "plain mean"),
    "more groups than clients": (lambda: planned(cohort=fcojax.cyclic(num_groups=3)), "groups"),
    "nobody in any round": (lambda: fcojax.from_trace([]), "round"),
    "a client twice in a round": (lambda: fcojax.from_trace([[0, 0]]), "distinct"),
    "a client that is not there": (lambda: planned(cohort=fcojax.from_trace([[2]])), "client 2"),
    "a client without rows": (lambda: clients(np.ones(2), np.ones(0)), "client 1"),
    "an example of NaN": (lambda: clients(np.ones(2), np.array([1.0, np.nan])), "client 1"),
    "an example beyond int32": (in_float32(lambda: clients(np.array([1, 2**40]))), "int32"),
    "a float beyond float32": (in_float32(lambda: clients(np.array([1.0, 1e300]))), "float32"),
    "fractional sizes": (lambda: rows([1.5, 1.5]), "sizes"),
    "sizes that add up to less": (lambda: rows([1, 1]), "sizes"),
    "an unknown kind of weights": (lambda: clients(np.ones(1), weights="size"), "weights"),
    "no weight at all": (lambda: clients(np.ones(1), weights=[0.0]), "zero"),
    "a weight that float32 cannot resolve": (
        in_float32(lambda: clients(np.ones(1), np.ones(1), weights=[1e-60, 1.0])),
        "client 0",
    ),
    "an id twice": (lambda: clients(np.ones(1), np.ones(1), ids=["a", "a"]), "twice"),
    "a member that is not there": (lambda: DATA.select([2]), "members"),
    "an id that looks the same": (
        lambda: clients(np.ones(1), np.ones(1), ids=["Ulm", "U\u00adlm"]),
        "twice",
    ),
    "a column of numbers and texts": (
        lambda: datasets.by_client(datasets.Pooled({"a": np.ones(2)}, np.array([1, "1"], object))),
        "client column",
    ),
    "ids of two kinds that look the same": (
        lambda: clients(np.ones(1), np.ones(1), ids=[1, "1"]),
        "twice",
    ),
    "counts of 3.5": (lambda: problems.poisson(COUNTS), "field y"),
    "a delta that vanishes in float32": (
        in_float32(lambda: fcojax.privacy.epsilon(PRIVATE, 100, 10, 1e-300)),
        "in float32",
    ),
    "a masked example": (lambda: clients(np.ma.masked_array([1.0], [True])), "field a"),
    "a traced example": (
        lambda: jax.jit(lambda a: fcojax.from_rows({"a": a}, [2]).weights)(np.ones(2)),
        "field a",
    ),
    "a report inside vmap": (
        lambda: jax.vmap(lambda rate: ran(hparams=RATES(rate), progress=print))(np.ones(2)),
        "progress",
    ),
    "models of five clients": (
        lambda: ran(algorithm=FED_AVG._replace(facts=algorithms.Facts(num_clients=5))),
        "made for 5 clients",
    ),
    "fields of one client": (
        lambda: fcojax.from_clients([{"a": np.ones(1), "y": np.ones(1)}, {"a": np.ones(1)}]),
        "client 1 has the fields a",
    ),
    "more labels than rows": (
        lambda: fcojax.from_clients([{"a": np.ones((2, 1)), "y": np.ones(3)}]),
        "the same number of rows",
    ),
    "letters": (lambda: clients(np.array(list("abab"))), "field a of client 0"),
    "a number as a label": (
        lambda: problems.partition.dirichlet(np.linspace(0, 1, 40), 4, 0.5),
        "not a label",
    ),
    # Calls of 0.3.
    "noise as an aggregator": (
        lambda: planned(aggregator=fcojax.privacy.gaussian(1.0, 2.0)),
        "pass it as uploads=",
    ),
    "a cohort that loses": (lambda: planned(cohort=fcojax.dropout(0.1)), "pass it as uploads="),
    "losses around a cohort": (
        lambda: fcojax.dropout(fcojax.everyone(), 0.1),
        "uploads=fcojax.dropout(",
    ),
    "an attack on an algorithm": (
        lambda: attacks.attacked(FED_AVG, (0,), attacks.scaled(2.0)),
        "uploads=attacks.attacked(",
    ),
    "an attack that sees all without its aggregator": (
        lambda: planned(uploads=attacks.attacked((0,), attacks.inner_product())),
        "aggregator=seeing_all(attack",
    ),
    "ids that were dropped": (
        lambda: jax.tree.map(lambda leaf: leaf, fcojax.from_clients(CLIENTS)).select([0]),
        "ids",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_call_that_would_run_and_be_wrong_is_refused(name):
    refused(*TABLE[name])


def test_jax_names_an_argument_that_has_to_be_known():
    with pytest.raises(jax.errors.ConcretizationTypeError, match="the argument share"):
        jax.jit(lambda share: fcojax.coin_flips(share).size(2))(0.5)
