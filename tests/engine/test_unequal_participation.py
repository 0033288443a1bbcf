"""Clients that take part with unequal probabilities: the limits with and without a correction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.check import limit, subject_of
from fcojax.engine.members import COHORT
from fcojax.uploads import chain, inverse_probability
from tests.engine.test_participation import SAMPLERS, arrivals

KEY = jax.random.key(0)
# Two clients with F_i(w) = h_i (w - a_i)^2 / 2, in rounds of which the second is in one of four.
CURVATURES, CENTRES = np.array([1.0, 2.0]), np.array([0.0, 3.0])
TRACE = fcojax.from_trace([[0, 1], [0], [0], [0]])


def quadratics(curvatures=CURVATURES, centres=CENTRES, **options):
    rows = (
        {"h": np.array([1.0 * h]), "a": np.array([1.0 * a])}
        for h, a in zip(curvatures, centres, strict=True)
    )
    return fcojax.from_clients(list(rows), **options)


FED_AVG = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * rows["h"] * (w - rows["a"]) ** 2)


QUICK = {"unequal coins", "some of a cycle", "trace"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SAMPLERS]
)
def test_inclusion_is_how_often_a_client_is_counted(name):
    sampler, num_clients = SAMPLERS[name], 5
    sizes = jnp.array([5, 2, 7, 3, 6])
    if name == "weighted":
        sampler = fcojax.weighted_cohort(cohort_size=1, power=2.0)

    def counts(index):
        draw = sampler.draw(KEY, index, num_clients, sizes)
        return jnp.zeros(num_clients).at[draw.indices].add(draw.present.astype(float))

    rounds = 4000
    found = jax.jit(jax.vmap(counts))(jnp.arange(rounds, dtype=jnp.int32))
    q = sampler.inclusion(jnp.arange(num_clients), num_clients, sizes) + np.zeros(num_clients)
    # Chains are correlated over about four rounds.
    assert np.abs(np.mean(found, axis=0) - q).max() < 5 * np.sqrt(4 * 0.25 / rounds)


def expected_limit(plan, data, num_steps, weights):
    """Return the limit of the expected model if each round is one of the trace's at random."""
    hparams = FED_AVG.hparams_type(client_lr=0.2)

    def one_step(_, state):
        def after(row):
            at = state._replace(round=row)
            return fcojax.advance(FED_AVG, hparams, at, data, plan, num_rounds=1)[0].server

        # The maps are affine, so the mean model is the expectation of a random round.
        return state._replace(server=jnp.mean(jax.vmap(after)(jnp.arange(4, dtype=jnp.int32))))

    state = fcojax.start(FED_AVG, hparams, jnp.array(1.0), data, KEY, plan)
    found = jax.jit(lambda state: jax.lax.fori_loop(0, 200, one_step, state))(state)
    moved = weights * (1 - (1 - 0.2 * CURVATURES) ** num_steps)
    return float(found.server), np.sum(moved * CENTRES) / np.sum(moved)


@pytest.mark.parametrize(
    "num_steps", [5, pytest.param(1, marks=(pytest.mark.slow, pytest.mark.gate))]
)
def test_limits_with_and_without_correction_have_their_closed_forms(num_steps):
    p = np.array([1.0, 3.0])
    data, work = quadratics(weights=p), fcojax.local_steps(num_steps)
    # Without correction client 1 has p_1 / (p_0 + p_1) of the mean, in a quarter of the rounds.
    biased = np.array([0.75 + 0.25 * p[0] / p.sum(), 0.25 * p[1] / p.sum()])
    found, expected = expected_limit(fcojax.Plan(work, TRACE), data, num_steps, biased)
    assert found == pytest.approx(expected, abs=1e-12)
    plan = fcojax.Plan(work, TRACE, inverse_probability("known"))
    found, expected = expected_limit(plan, data, num_steps, p / p.sum())
    assert found == pytest.approx(expected, abs=1e-12)
    if num_steps == 1:
        weights = p * CURVATURES
        assert found == pytest.approx(np.sum(weights * CENTRES) / weights.sum(), abs=1e-12)


@pytest.mark.parametrize("kind", ["estimated", pytest.param("known", marks=pytest.mark.slow)])
def test_corrected_weights_are_those_of_a_plain_loop(kind):
    curvatures, centres = np.array([1.0, 2.0, 0.5]), np.array([0.0, 3.0, -2.0])
    p, q = np.array([1.0, 3.0, 2.0]), np.array([0.9, 0.3, 0.6])
    data, lr, lost = quadratics(curvatures, centres, weights=p), 0.1, 0.25
    sampler, losses = fcojax.coin_flips(q), fcojax.dropout(lost)
    both = chain(inverse_probability(kind), losses)
    plan = fcojax.Plan(fcojax.local_steps(1), sampler, both)
    hparams = FED_AVG.hparams_type(client_lr=lr)
    w, _ = fcojax.run(FED_AVG, hparams, jnp.array(1.0), data, KEY, plan, num_rounds=20)
    x, counts, arrive = 1.0, np.zeros(3), arrivals(losses, 20, 3, KEY)
    for index in range(20):
        draw = sampler.draw(jax.random.fold_in(KEY, COHORT), jnp.int32(index), 3)
        members = np.asarray(draw.members)[np.asarray(draw.present)]
        arrived = members[arrive[index, members]]
        share = q * (1 - lost) if kind == "known" else (counts + 1) / (index + 1)
        counts[arrived] += 1
        step = p / share * curvatures * (centres - x) / p.sum()
        x += lr * step[arrived].sum()
    assert float(w) == pytest.approx(x, abs=1e-12)


EXACT = (
    "scaffold fast_scaffold composite_fl fed_dual_avg_tracking prox_skip fed_normal_map fed_dr "
    "fed_admm fed_dyn fed_manifold"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.gate] * (n == "scaffold")) for n in EXACT.split()]
)
def test_exact_methods_stay_exact_without_correction(name):
    """At the optimum every client's state is right, so it does not matter who comes how often."""
    sampler = fcojax.coin_flips([1.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9])
    subject = subject_of(getattr(fcojax.algorithms, name))
    found = limit(subject, sampler, num_rounds=6000 if name == "scaffold" else 20_000)
    assert found.distance < 1e-10
