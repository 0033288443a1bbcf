"""Odd plans: work, samplers and traces."""

import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms
from tests.odd_calls.table import FED_AVG, STEPS, gives, planned, ran, says

PLANS = {
    "a number as plan": says(lambda: ran(plan=5), "plan is 5; pass how much clients work"),
    "no plan": says(lambda: ran(plan=None), "plan is None"),
    "a sampler as plan": says(lambda: ran(plan=fcojax.everyone()), "plan is Everyone(); pass how"),
    "a function that was not called": says(lambda: ran(plan=fcojax.local_steps), "pass how much"),
    "a number as work": says(lambda: planned(work=5), "the plan's work is 5; pass something like"),
    "a number as cohort": says(lambda: planned(cohort=2), "the plan's cohort is 2; pass something"),
    "zero as cohort": says(lambda: planned(cohort=0), "the plan's cohort is 0; pass something"),
    "no cohort": says(lambda: planned(cohort=None), "the plan's cohort is None"),
    "a sampler that was not called": says(
        lambda: planned(cohort=fcojax.everyone), "uniform_cohort(10)"
    ),
    "a number as uplink": says(lambda: planned(uplink=3), "the plan's uplink is 3; pass an Uplink"),
    "no clients side by side": says(
        lambda: planned(client_chunk_size=0), "client_chunk_size is 0; pass a whole number"
    ),
    "half a client side by side": says(
        lambda: planned(client_chunk_size=0.5), "client_chunk_size is 0.5"
    ),
    "clients of numpy's side by side": gives(lambda: planned(client_chunk_size=np.int64(1)), 1.0),
    "more side by side than there are": gives(lambda: planned(client_chunk_size=9), 1.0),
    "clients of JAX's side by side": gives(lambda: planned(client_chunk_size=jnp.array(2)), 1.0),
}

WORK = {
    "no steps": says(lambda: fcojax.local_steps(0), "num_steps is 0; pass a whole number of at le"),
    "minus a step": says(lambda: fcojax.local_steps(-1), "num_steps is -1"),
    "half a step": says(lambda: fcojax.local_steps(2.5), "num_steps is 2.5"),
    "steps as a string": says(lambda: fcojax.local_steps("3"), "num_steps is '3'"),
    "steps as a truth value": says(lambda: fcojax.local_steps(True), "num_steps is True"),
    "steps of nobody": says(lambda: fcojax.local_steps(None), "num_steps is None"),
    "more steps than are counted": says(lambda: fcojax.local_steps(2**40), "at most 2147483647"),
    "steps of numpy's": gives(lambda: fcojax.local_steps(np.int32(3)).num_steps, 3),
    "steps of JAX's": gives(lambda: fcojax.local_steps(jnp.array(3)).num_steps, 3),
    "an empty list of steps": says(lambda: fcojax.local_steps([]), "pass one count per client"),
    "a client without steps": says(lambda: fcojax.local_steps([1, 0]), "num_steps of client 1 is"),
    "a matrix of steps": says(lambda: fcojax.local_steps([[1, 2]]), "num_steps of client 0 is [1,"),
    "a ragged matrix of steps": says(
        lambda: fcojax.local_steps([[1], [2, 3]]), "num_steps of client 0 is [1]"
    ),
    "steps of numpy's clients": gives(
        lambda: list(fcojax.local_steps(np.array([1, 2])).counts), [1, 2]
    ),
    "steps of JAX's clients": gives(
        lambda: list(fcojax.local_steps(jnp.array([1, 2])).counts), [1, 2]
    ),
    "steps of other clients": says(
        lambda: ran(plan=fcojax.local_steps([1, 1, 1])), "names counts for 3 clients but the prob"
    ),
    "more at least than at most": says(
        lambda: fcojax.local_steps(2, fewest=3), "fewest is 3 but num_steps is 2; pass at most 2"
    ),
    "no steps at least": says(lambda: fcojax.local_steps(2, fewest=0), "fewest is 0"),
    "a least for each client": says(
        lambda: fcojax.local_steps([1, 2], fewest=1), "pass one count per client alone"
    ),
    "no examples": says(lambda: fcojax.local_steps(1, 0), "batch_size is 0; pass a whole number"),
    "half an example": says(lambda: fcojax.local_steps(1, 0.5), "or None"),
    "examples of numpy's": gives(lambda: fcojax.local_steps(1, np.uint8(4)).batch_size, 4),
    "more examples than there are": says(
        lambda: ran(plan=fcojax.local_steps(1, 3)), "batch_size is 3 but the largest client has 2"
    ),
    "more examples than there are, with replacement": gives(
        lambda: ran(plan=fcojax.local_steps(1, 3, replace=True)), 1.0
    ),
    "all examples with replacement": says(
        lambda: fcojax.local_steps(1, replace=True), "replace is True but batch_size is None"
    ),
    "no epochs": says(lambda: fcojax.local_epochs(0), "num_epochs is 0"),
    "half an epoch": says(lambda: fcojax.local_epochs(0.5, 2), "num_epochs is 0.5"),
    "epochs of no examples": says(lambda: fcojax.local_epochs(1, 0), "batch_size is 0"),
    "epochs of numpy's": gives(lambda: fcojax.local_epochs(np.int64(2)).num_epochs, 2),
    "epochs of two clients": gives(lambda: ran(plan=fcojax.local_epochs([1, 1])), 1.0),
}  # fmt: skip

SAMPLERS = {
    "nobody": says(lambda: fcojax.uniform_cohort(0), "cohort_size is 0; pass a whole number"),
    "half a client": says(lambda: fcojax.uniform_cohort(0.5), "cohort_size is 0.5"),
    "clients as a string": says(lambda: fcojax.uniform_cohort("2"), "cohort_size is '2'"),
    "more than there are": says(
        lambda: planned(cohort=fcojax.uniform_cohort(3)),
        "cohort_size is 3 but the problem has 2 clients; pass at most 2, or use everyone()",
    ),
    "clients of numpy's": gives(lambda: fcojax.uniform_cohort(np.int64(2)).cohort_size, 2),
    "nobody by weight": says(lambda: fcojax.weighted_cohort(0), "cohort_size is 0"),
    "a power that is NaN": says(lambda: fcojax.weighted_cohort(1, np.nan), "power is nan; pass"),
    "a power as a string": says(lambda: fcojax.weighted_cohort(1, "1"), "power is '1'; pass a fin"),
    "no power": says(lambda: fcojax.weighted_cohort(1, None), "power is None"),
    "more by weight than there are": says(
        lambda: planned(cohort=fcojax.weighted_cohort(3)), "pass at most 2"
    ),
    "coins that never show heads": says(lambda: fcojax.coin_flips(0), "probability is 0; pass a n"),
    "coins above one": says(lambda: fcojax.coin_flips(1.5), "pass a number above 0 and at most 1"),
    "coins as a string": says(lambda: fcojax.coin_flips("0.5"), "probability is '0.5'; pass a num"),
    "coins of NaN": says(lambda: fcojax.coin_flips(np.nan), "probability is nan"),
    "coins in a list": says(lambda: fcojax.coin_flips([0.5]), "probability is [0.5]; pass a numbe"),
    "coins of numpy's": gives(lambda: fcojax.coin_flips(np.float64(0.5)).probability, 0.5),
    "losing everything": says(
        lambda: fcojax.dropout(fcojax.everyone(), 1.0), "probability is 1.0; pass a number of at le"
    ),
    "losing a string": says(
        lambda: fcojax.dropout(fcojax.everyone(), "0.1"), "probability is '0.1'; pass a number"
    ),
    "losing nothing": gives(
        lambda: planned(cohort=fcojax.dropout(fcojax.everyone(), 0.0)), 1.0
    ),
    "losing of a number": says(
        lambda: fcojax.dropout(2, 0.1), "sampler is 2; pass a sampler, as in dropout(everyone()"
    ),
    "losing of a function": says(lambda: fcojax.dropout(fcojax.everyone, 0.1), "pass a sampler"),
    "losing twice": says(
        lambda: fcojax.dropout(fcojax.dropout(fcojax.everyone(), 0.1), 0.1), "one dropout both"
    ),
    "losing what all must send": says(
        lambda: ran(
            algorithm=FED_AVG._replace(needs_everyone=True),
            plan=fcojax.Plan(STEPS, fcojax.dropout(fcojax.everyone(), 0.1)),
        ),
        "which can lose uploads of the 2 clients",
    ),
    "leaving out whom all need": says(
        lambda: ran(
            algorithm=algorithms.fed_pd(lambda w, rows: w * rows["a"]),
            hparams=algorithms.fed_pd.Hparams(),
            plan=fcojax.Plan(STEPS, fcojax.uniform_cohort(1)),
        ),
        "needs every one of them in every round; pass everyone()",
    ),
    "no groups": says(lambda: fcojax.cyclic(0), "num_groups is 0"),
    "nobody of a group": says(lambda: fcojax.cyclic(2, 0), "cohort_size is 0; pass a whole number"),
    "more groups than clients": says(
        lambda: planned(cohort=fcojax.cyclic(3)), "num_groups is 3 but the problem has 2 clients"
    ),
    "more of a group than there are": says(
        lambda: planned(cohort=fcojax.cyclic(2, 2)), "the smallest of 2 groups has 1 clients"
    ),
    "never leaving": says(lambda: fcojax.markov(0, 0.5), "leave is 0; pass a number above 0"),
    "joining by a string": says(lambda: fcojax.markov(0.5, "0.5"), "join is '0.5'; pass a number"),
    "nobody of those there": says(lambda: fcojax.markov(0.5, 0.5, 0), "cohort_size is 0"),
    "an empty trace": says(lambda: fcojax.from_trace([]), "nobody is there in any round"),
    "a trace without clients": says(lambda: fcojax.from_trace([[], []]), "nobody is there"),
    "no trace": says(lambda: fcojax.from_trace(None), "the trace is None; pass a matrix"),
    "a number as trace": says(lambda: fcojax.from_trace(5), "the trace is 5; pass a matrix"),
    "numpy's number as trace": says(lambda: fcojax.from_trace(np.array(5)), "of shape (); pass"),
    "a trace of halves": says(lambda: fcojax.from_trace(np.full((2, 2), 0.5)), "true or false, 1"),
    "a client twice": says(lambda: fcojax.from_trace([[0, 0]]), "pass distinct client indices"),
    "a client below zero": says(lambda: fcojax.from_trace([[-1]]), "round 0 of the trace is [-1]"),
    "a client by name": says(lambda: fcojax.from_trace([["a"]]), "round 0 of the trace is ['a']"),
    "half a client there": says(lambda: fcojax.from_trace([[0.5]]), "round 0 of the trace is [0.5"),
    "numbers in place of rounds": says(lambda: fcojax.from_trace([0, 1]), "round 0 of the trace i"),
    "a ragged round": says(lambda: fcojax.from_trace([[[0], [1, 2]]]), "pass distinct client indi"),
    "a client too far": says(lambda: fcojax.from_trace([[2**40]]), "round 0 of the trace is [1099"),
    "no such file": says(lambda: fcojax.from_trace("nowhere.npy"), "there is no trace nowhere.npy"),
    "a trace of JAX's": gives(
        lambda: planned(cohort=fcojax.from_trace(jnp.eye(2, dtype=bool))), 0.5
    ),
    "a trace of other clients": says(
        lambda: planned(cohort=fcojax.from_trace(np.ones((2, 3)))), "the trace has 3 clients but"
    ),
    "a trace of more clients": says(
        lambda: planned(cohort=fcojax.from_trace([[2]])), "the trace names client 2 but the problem"
    ),
    "nobody of a trace": says(lambda: fcojax.from_trace([[0]], 0), "cohort_size is 0"),
}  # fmt: skip

TABLE = {
    f"{place}: {name}": odd
    for place, rows in (("plan", PLANS), ("work", WORK), ("sampler", SAMPLERS))
    for name, odd in rows.items()
}
