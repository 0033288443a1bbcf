"""Cohorts of two exchanges, steps until their carry says so, and numbers of steps by round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import Algorithm, ClientResult
from fcojax.engine.participation.samplers import Held

KEY = jax.random.key(0)
LOSS = lambda w, rows: 0.5 * rows["h"] * (w - rows["a"]) ** 2  # noqa: E731


def clients(h, a):
    rows = ({"h": np.array([x]), "a": np.array([y])} for x, y in zip(h, a, strict=True))
    return fcojax.from_clients(list(rows))


CURVATURES = [1.0, 2.0, 0.5, 3.0]
MIME = fcojax.algorithms.mime(LOSS)
HPARAMS = MIME.hparams_type(client_lr=0.1)


def whole_model(hparams, w, context):
    return {"model": w}


def models(data, cohort, num_rounds, algorithm=MIME, hparams=HPARAMS, work=None, **options):
    """Return the model after each round."""
    plan = fcojax.Plan(work or fcojax.local_steps(3), cohort, **options)
    _, history = fcojax.run(
        algorithm,
        hparams,
        jnp.array(1.0),
        data,
        KEY,
        plan,
        num_rounds=num_rounds,
        observe=whole_model,
    )
    return np.asarray(history["model"])


def test_a_held_cohort_is_the_method_on_its_clients():
    trace = fcojax.held(fcojax.from_trace([[0, 2], [1, 3]]), rounds=2)
    assert isinstance(trace, Held) and trace.rounds == 2
    centres = [0.0, 3.0, -2.0, 5.0]
    found = models(clients(CURVATURES, centres), trace, 2)
    pair = clients(CURVATURES[::2], centres[::2])
    np.testing.assert_allclose(found, models(pair, fcojax.everyone(), 2), rtol=0, atol=1e-15)


def test_two_exchanges_with_sampled_cohorts_are_exact_at_a_common_minimiser():
    """Only then: otherwise the gradient of a cohort is not zero at the optimum."""
    cohort = fcojax.held(fcojax.uniform_cohort(cohort_size=2), rounds=2)
    assert models(clients(CURVATURES, [3.0] * 4), cohort, 200)[-1] == pytest.approx(3, abs=1e-10)


@pytest.mark.parametrize(
    ("cohort", "lost"),
    [
        (fcojax.uniform_cohort(cohort_size=2), 0.0),
        (fcojax.held(fcojax.uniform_cohort(cohort_size=2), rounds=3), 0.0),
        (fcojax.held(fcojax.everyone(), rounds=2), 0.3),
    ],
)
def test_other_cohorts_and_losses_are_refused_for_two_exchanges(cohort, lost):
    with pytest.raises(ValueError, match="or held"):
        models(clients(CURVATURES, [3.0] * 4), cohort, 2, uploads=fcojax.dropout(lost))


def returning(count):
    """Return an algorithm whose model is what ``count(local)`` returns for its only client."""
    return Algorithm(
        init=lambda hparams, params: (params, ()),
        broadcast=lambda hparams, server: (),
        client_update=lambda hparams, m, client, local, key: ClientResult((), count(local), {}),
        server_update=lambda hparams, server, mean, fraction, key: mean,
        model=lambda hparams, server: server,
        hparams_type=tuple,
    )


@pytest.mark.parametrize("batch_size", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_steps_until_a_condition_are_the_first_steps_of_a_scan(batch_size):
    data = fcojax.from_clients(
        [{"a": np.random.default_rng(seed).uniform(1, 2, n)} for seed, n in enumerate((3, 5))]
    )

    def add(total, batch):
        return total + jnp.sum(batch.weights * batch.examples["a"]) / jnp.sum(batch.weights)

    def count(local):
        zero = jnp.zeros(())
        some, taken = local.until(add, zero, lambda total: total > 4)
        all_steps, every = local.until(add, zero, lambda total: total > 100)
        few, two = local.until(add, zero, lambda total: total > 4, at_most=2)
        scanned = local.scan(add, zero, num_steps=taken), local.scan(add, zero)
        short = local.scan(add, zero, num_steps=2)
        right = (some == scanned[0]) & (all_steps == scanned[1]) & (few == short)
        right &= (some > 4) & (taken > 2) & (taken < 5) & (every == 9) & (two == 2)
        return right.astype(float)

    plan = fcojax.Plan(fcojax.local_steps(9, batch_size))
    model, _ = fcojax.run(returning(count), HPARAMS, jnp.zeros(()), data, KEY, plan, num_rounds=1)
    assert float(model) == 1


def test_steps_by_round_are_those_of_plans_one_after_the_other():
    data = fcojax.from_clients([{"h": np.ones(n), "a": np.arange(1.0 * n)} for n in (3, 5)])
    algorithm = fcojax.algorithms.fed_avg(LOSS)
    hparams = algorithm.hparams_type(client_lr=0.1)
    work = fcojax.local_steps(4, 2, by_round=[1, 4])
    assert work.max_steps(5) == 4 and work.min_steps(3) == 1
    found = models(data, fcojax.everyone(), 3, algorithm, hparams, work)
    state = None
    for index, count in enumerate((1, 4, 4)):  # the last one holds
        work = fcojax.local_steps(count, 2)
        state = state or fcojax.start(algorithm, hparams, jnp.array(1.0), data, KEY, work)
        state, _ = fcojax.advance(algorithm, hparams, state, data, work, num_rounds=1)
        assert found[index] == float(state.server)
    with pytest.raises(ValueError, match="by_round is 5"):
        fcojax.local_steps(4, by_round=[5])
