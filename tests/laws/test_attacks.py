"""Attacks: their uploads, rounds and clients, and how far they move each mean."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import attacks, privacy, robust, uploads
from fcojax.algorithms import fed_avg
from fcojax.uploads.contract import MEAN

KEY = jax.random.key(6)
FULL_STEP = fed_avg.Hparams(client_lr=1.0)


def clients(*targets):
    return fcojax.from_clients([{"a": np.array([a])} for a in targets])


@functools.cache
def honest():
    return fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)


PLAN = fcojax.Plan(fcojax.local_steps(1))


def one_round(attack, bad, targets, plan=PLAN):
    plan = plan._replace(uploads=uploads.chain(attacks.attacked(bad, attack), plan.uploads))
    model, history = fcojax.run(
        honest(), FULL_STEP, jnp.array(0.0), clients(*targets), KEY, plan, num_rounds=1
    )
    return float(model), history


def test_without_attackers_a_norm_is_adapted_as_without_the_attack():
    """The share within the norm and the flag of an attack are both parts of an opened upload."""
    adaptive, attack = privacy.gaussian(privacy.adaptive_clip(start=10.0)), attacks.inner_product()
    seen = PLAN._replace(
        uploads=uploads.chain(attacks.attacked((), attack), adaptive),
        aggregator=attacks.seeing_all(attack),
    )
    norms = []
    for plan in (PLAN._replace(uploads=adaptive), seen):
        given, data = (honest(), FULL_STEP), clients(1.0, 2.0, 6.0)
        state = fcojax.start(*given, jnp.array(0.0), data, KEY, plan)
        state, _ = fcojax.advance(*given, state, data, plan, num_rounds=2)
        norms.append(float(state.memory.transforms[-1]))
    assert norms[0] == norms[1] < 10.0


MEDIAN = robust.median()
CLIPPED = robust.centred_clipping(2.0)


@pytest.mark.slow
def test_those_that_see_all_send_what_they_say_before_any_transform_and_aggregator():
    """The honest mean is 2 and the deviation 1; a median and a compressor follow."""
    targets, bad = (1.0, 3.0, 5.0, 5.0), (2, 3)
    attack = attacks.little_is_enough(1.5)
    sent = 2.0 - 1.5
    for rule, after, expected in (
        (MEAN, (), np.mean([1.0, 3.0, sent, sent])),
        (MEDIAN, (), np.median([1.0, 3.0, sent, sent])),
        (CLIPPED, (), np.mean([1.0, 2.0, sent, sent])),
        (MEAN, (uploads.compressed(uploads.half()),), np.mean([1.0, 3.0, sent, sent])),
        (MEDIAN, (uploads.ef21(uploads.half()),), np.median([1.0, 3.0, sent, sent])),
    ):
        seen = PLAN._replace(
            uploads=uploads.chain(*after), aggregator=attacks.seeing_all(attack, rule)
        )
        np.testing.assert_allclose(one_round(attack, bad, targets, seen)[0], expected, rtol=1e-12)
    cohort = fcojax.from_trace(np.array([[True, False, True, False]]))
    seen = PLAN._replace(cohort=cohort, aggregator=attacks.seeing_all(attack))
    found, history = one_round(attack, bad, targets, seen)
    np.testing.assert_allclose(found, 1.0)  # one honest client has no deviation
    assert history["bytes_up"][0] == 2 * 8
