"""Audits of epsilon: no bound above the promised one, and detection of a planted fault."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fcojax
from fcojax import privacy, uploads
from fcojax.algorithms import fed_avg, fed_dual_avg, scaffold
from fcojax.engine.transform import Noise
from fcojax.privacy.audit import _least_probabilities
from fcojax.transforms import euclidean, l1

pytestmark = pytest.mark.slow

DELTA = 1e-2
DIM = 3


@functools.cache
def data():
    rng = np.random.default_rng(0)
    return fcojax.from_clients([{"a": rng.standard_normal((2, DIM))} for _ in range(6)])


def loss(w, rows):
    return 0.5 * jnp.sum((w[None] - rows["a"]) ** 2, axis=1)


AVG = fed_avg(loss)
DUAL = fed_dual_avg(loss, euclidean(l1()))
TRACKING = scaffold(loss)
COINS = fcojax.coin_flips(0.5)


def audited(chosen, hparams, private, cohort=None, num_rounds=2, **options):
    plan = fcojax.Plan(fcojax.local_steps(1), cohort or fcojax.everyone(), private)
    return privacy.audit(
        chosen,
        hparams,
        jnp.zeros(DIM),
        data(),
        0,
        plan,
        num_rounds=num_rounds,
        delta=DELTA,
        key=jax.random.key(1),
        **options,
    )


NOISE = privacy.gaussian(1.0, noise=1.0)
RATE = fed_avg.Hparams(client_lr=0.5)
CASES = {
    "fed_avg": (AVG, RATE, NOISE),
    "fed_avg with coins": (AVG, RATE, NOISE, COINS),
    "fed_avg without replacement": (AVG, RATE, NOISE, fcojax.uniform_cohort(cohort_size=3)),
    "fed_dual_avg": (DUAL, DUAL.hparams_type(client_lr=0.5, penalty_scale=0.2), NOISE, COINS),
    "tracking": (TRACKING, TRACKING.hparams_type(client_lr=0.5), NOISE, COINS),
    "error feedback": (AVG, RATE, uploads.chain(uploads.ef14(uploads.top_k(1)), NOISE), COINS),
    "quantised": (AVG, RATE, uploads.chain(uploads.compressed(uploads.qsgd(3)), NOISE), COINS),
    "adaptive clipping": (
        AVG,
        RATE,
        privacy.gaussian(privacy.adaptive_clip(start=1.0, noise=2.0), noise=1.0),
    ),
    "bands": (
        AVG,
        RATE,
        privacy.gaussian(1.0, noise=1.0, bands=privacy.square_root_bands(3)),
        fcojax.cyclic(num_groups=3),
        6,
    ),
    "two points": (AVG, fcojax.grid.product(fed_avg.Hparams, client_lr=[0.5, 0.1]), NOISE, COINS),
}

GATE = ("fed_avg with coins", "error feedback")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.gate) if name in GATE else name for name in CASES]
)
def test_no_bound_is_above_what_is_promised(name):
    found = audited(*CASES[name])
    assert found.lower <= found.promised < 10


def test_no_bound_is_above_what_is_promised_for_modular_sums():
    """No bound is above it either if the attacker sees which sums would have overflowed."""
    private = privacy.modular_gaussian(1.0, 1.0, step=0.01, bits=11)
    found = audited(AVG, RATE, private, released=("refused",))
    assert found.lower <= found.promised < 10


def test_a_bound_is_a_good_part_of_the_promise_where_everyone_takes_part():
    """So a bound near zero in other cases shows that sampling hides the client."""
    found = audited(*CASES["fed_avg"])
    assert found.lower > 0.3 * found.promised


@pytest.mark.gate
def test_half_of_the_noise_is_found():
    """The transform claims twice the noise that it adds."""
    half = NOISE._replace(facts=NOISE.facts._replace(noisy=Noise(2.0)))
    found = audited(AVG, RATE, half, num_runs=2000)
    promised = privacy.Releases(fcojax.everyone(), 2.0, 2)
    assert found.lower > found.promised == privacy.total_epsilon([promised], 6, DELTA)


@pytest.mark.gate
def test_numbers_of_clients_are_not_protected():
    found = audited(AVG, RATE, NOISE, released=("participants",))
    assert found.lower > found.promised and "participants" in found.statistic


@pytest.mark.gate
def test_bounds_of_probabilities_are_those_of_scipy():
    found = _least_probabilities(50, 0.01)
    count = np.arange(1, 51)
    np.testing.assert_allclose(found[1:], scipy.stats.beta.ppf(0.01, count, 51 - count), atol=1e-9)
    assert found[0] == 0


def test_a_client_that_is_not_there_is_refused():
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=NOISE)
    with pytest.raises(ValueError, match="client is 6 of 6"):
        privacy.audit(
            AVG,
            RATE,
            jnp.zeros(DIM),
            data(),
            6,
            plan,
            num_rounds=1,
            delta=DELTA,
            key=jax.random.key(0),
        )
