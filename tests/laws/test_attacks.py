"""Attacks: their uploads, rounds and clients, and how far they move each mean."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import attacks, privacy, robust, uploads
from fcojax.algorithms import fed_avg
from fcojax.uploads.aggregator import MEAN
from tests.support.rules import robust_mean

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


def cloud(seed=0, n=20, dim=10):
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, dim)) * 0.3
    points[:, 0] += 1.0
    return jnp.asarray(points), jnp.asarray(rng.uniform(0.5, 1.5, n))


TOGETHER = {
    "inner_product": attacks.inner_product(2.0),
    "little_is_enough": attacks.little_is_enough(1.5),
}
MEANS = {
    "mean": robust.centred_clipping(np.inf),
    "median": robust.median(),
    "trimmed_mean": robust.trimmed_mean(0.45),
    "geometric_median": robust.geometric_median(30),
    "krum": robust.krum(0.45),
    "centred_clipping": robust.centred_clipping(1.5),
}


@functools.cache
def curve(name, attack):
    """Return the distance of a rule from the honest mean, for each weight of bad clients."""
    points, weights = cloud()
    found = []
    for number in (0, 2, 4, 6, 8):
        bad = jnp.arange(20) < number
        shares = jnp.where(bad, 1.0, weights)
        shares = shares / jnp.sum(shares)
        target = np.average(points[number:], axis=0, weights=shares[number:])
        sent = attack(points, shares, bad.astype(float))
        attacked = jnp.where(bad[:, None], sent[None], points)
        moved = robust_mean(MEANS[name], attacked, shares) - target
        found.append(np.linalg.norm(moved) / np.linalg.norm(target))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEANS)
def test_breakdown_curves(name):
    """With minus a thousand times the mean the mean breaks at once, a rule at forty per cent."""
    far = attacks.inner_product(1000.0).together
    found = curve(name, far)
    assert found[0] < 0.35
    if name == "mean":
        assert np.all(found[1:] > 50)
    elif name == "centred_clipping":  # each bad client moves it by its weight times the radius
        assert np.all(found[1:3] < 0.8)
    else:
        assert np.all(found[1:] < 1.0)
    for attack in TOGETHER.values():
        assert np.all(curve(name, attack.together)[:2] < (0.7 if name == "mean" else 0.5))
