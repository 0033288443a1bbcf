"""Audits of epsilon: no bound above the promised one, and detection of a planted fault."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fcojax
from fcojax import privacy, uploads
from fcojax.algorithms import fed_avg, fed_dual_avg
from fcojax.privacy.audit import _bounds, _least_probabilities
from fcojax.robust.rules import clip
from fcojax.transforms import euclidean, l1
from fcojax.uploads.transform import Noise

DELTA = 1e-2
DIM = 3


@functools.cache
def data(num_clients=6):
    rng = np.random.default_rng(0)
    return fcojax.from_clients([{"a": rng.standard_normal((2, DIM))} for _ in range(num_clients)])


def loss(w, rows):
    return 0.5 * jnp.sum((w[None] - rows["a"]) ** 2, axis=1)


AVG = fed_avg(loss)
DUAL = fed_dual_avg(loss, euclidean(l1()))
COINS = fcojax.coin_flips(0.5)


def audited(chosen, hparams, private, cohort=None, num_rounds=2, clients=6, client=0, **options):
    plan = fcojax.Plan(fcojax.local_steps(1), cohort or fcojax.everyone(), private)
    params, seed = options.pop("params", jnp.zeros(DIM)), options.pop("seed", 1)
    given = chosen, hparams, params, data(clients), client, plan
    key = jax.random.key(seed)
    return privacy.audit(*given, num_rounds=num_rounds, delta=DELTA, key=key, **options)


NOISE = privacy.gaussian(1.0, noise=1.0)
RATE = fed_avg.Hparams(client_lr=0.5)
CASES = {
    "fed_avg": (AVG, RATE, NOISE),
    "fed_avg with coins": (AVG, RATE, NOISE, COINS),
    "fed_dual_avg": (DUAL, DUAL.hparams_type(client_lr=0.5, penalty_scale=0.2), NOISE, COINS),
    "error feedback": (AVG, RATE, uploads.chain(uploads.ef14(uploads.top_k(1)), NOISE), COINS),
    "adaptive clipping": (
        AVG,
        RATE,
        privacy.gaussian(privacy.adaptive_clip(start=1.0, noise=2.0), noise=1.0),
    ),
    "bands": (
        AVG,
        RATE,
        privacy.gaussian(1.0, noise=1.0, bands=(1.0, 0.5, 0.375)),
        fcojax.cyclic(num_groups=3),
        6,
    ),
    "two points": (AVG, fcojax.grid.product(fed_avg.Hparams, client_lr=[0.5, 0.1]), NOISE, COINS),
}

GATE = ("fed_avg with coins", "error feedback")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.gate) if name in GATE else name for name in CASES]
)
def test_no_bound_is_above_what_is_promised(name):
    found = audited(*CASES[name])
    assert found.lower <= found.promised < 10


@pytest.mark.slow
def test_a_bound_is_a_good_part_of_the_promise_where_everyone_takes_part():
    """So a bound near zero in other cases shows that sampling hides the client."""
    found = audited(*CASES["fed_avg"], num_runs=4000)
    assert found.lower > 0.3 * found.promised


LOUD = privacy.gaussian(1.0, noise=2.0)
ADDED: Any = LOUD.receive


def shared_by_points():
    """Noise from a key of the round that all points of a sweep share."""

    def receive(at, found, weights, past):
        return ADDED(at._replace(private_key=at.round_key), found, weights, past)

    return dataclasses.replace(LOUD, receive=receive)


def half():
    """The transform claims twice the noise that it adds."""
    return dataclasses.replace(NOISE, facts=NOISE.facts._replace(noisy=Noise(2.0)))


def clipped_by_leaf():
    """Each of four leaves is clipped to C, so that an upload may have twice the norm."""

    def open_(at, payload, state, past):
        return uploads.Opened([clip(leaf, 1.0)[0] for leaf in payload])

    return dataclasses.replace(NOISE, open=open_)


def over_the_cohort():
    """The sum is divided by the weight of the actual cohort, which tells who was there."""

    def receive(at, found, weights, past):
        own = weights._replace(expected_weight=weights.cohort_weight)
        return ADDED(at, found, own, past)

    return dataclasses.replace(LOUD, receive=receive)


TWO = fcojax.grid.product(fed_avg.Hparams, client_lr=[0.5, 0.1])
# The transform, what it runs with, the number of leaves, and the runs that find it.
FAULTS = {
    "noise shared by points": (shared_by_points, {"hparams": TWO}, 1, 500),
    "half of the noise": (half, {}, 1, 6000),
    "four leaves, each clipped to C": (clipped_by_leaf, {}, 4, 6000),
    "the cohort's denominator": (over_the_cohort, {"clients": 2}, 1, 6000),
}


def of_fault(name, num_runs, seed=1):
    make, options, leaves, _ = FAULTS[name]

    def summed(w, rows):
        return sum(loss(leaf, rows) for leaf in w)

    given = {"hparams": RATE, "params": [jnp.zeros(DIM) for _ in range(leaves)]} | options
    return audited(fed_avg(summed), private=make(), num_runs=num_runs, seed=seed, **given)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    found = of_fault(name, FAULTS[name][-1])
    assert found.lower > found.promised


@pytest.mark.slow
@pytest.mark.gate
def test_numbers_of_clients_are_not_protected():
    found = audited(AVG, RATE, NOISE, released=("participants",))
    assert found.lower > found.promised and "participants" in found.statistic


def test_bounds_of_probabilities_are_those_of_scipy():
    found = _least_probabilities(50, 0.01)
    count = np.arange(1, 51)
    np.testing.assert_allclose(found[1:], scipy.stats.beta.ppf(0.01, count, 51 - count), atol=1e-9)
    assert found[0] == 0
    # 40 of 50 runs with the client are above 9.5, and 10 without.
    both = np.arange(50.0)[:, None], np.arange(-30.0, 20.0)[:, None]
    bound = _bounds(both, np.array([[9.5]]), DELTA, 0.02)[0, 0, 0]
    least, most = scipy.stats.beta.ppf(0.01, 40, 11), scipy.stats.beta.ppf(0.99, 11, 40)
    assert bound == pytest.approx(np.log((least - DELTA) / most), rel=1e-6)


def test_a_client_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="client is 6 of 6"):
        audited(AVG, RATE, NOISE, client=6)
