"""FedDA: its special cases, a slow oracle, and its fixed point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_da
from fcojax.transforms import l1, nuclear
from tests.support import federations
from tests.support.composite_oracles import soft

KEY = jax.random.key(5)
START = jnp.array([0.5, -1.0, 0.25, 2.0])


def data():
    return fcojax.from_clients(federations.quadratic_clients())


def models(algorithm, hparams, num_rounds, work, params=START):
    observe = lambda hparams, model, context: {"model": model}  # noqa: E731
    history = fcojax.run(
        algorithm, hparams, params, data(), KEY, work, num_rounds=num_rounds, observe=observe
    )[1]
    return np.asarray(history["model"])


def oracle(estimate, metric, hparams, num_steps, num_rounds):
    """Clients hold x'Ax/2 - c'x; psi is lambda times the l1 norm."""
    curvatures, slopes = federations.client_means(federations.quadratic_clients())
    a, x = 1 - hparams.b1, np.asarray(START)
    v, rates, n, weight = np.full(4, hparams.adaptivity**2), np.zeros(4), np.zeros(4), 0.0
    found = []
    for _ in range(num_rounds):
        ends = []
        for curvature, slope in zip(curvatures, slopes, strict=True):
            z, elapsed, fresh, mine, share, last = np.zeros(4), 0.0, np.zeros(4), n, weight, x
            for _ in range(num_steps):
                moved = x - rates * z
                w = soft(moved, rates * elapsed * hparams.penalty_scale)
                gradient = curvature @ w - slope
                if estimate == "momentum":
                    mine, share = a * gradient + (1 - a) * mine, a + (1 - a) * share
                elif estimate == "variance_reduced":
                    before = curvature @ last - slope
                    mine, share = gradient + (1 - a) * (mine - before), 1 + (1 - a) * (share - 1)
                else:
                    mine, share = gradient, 1.0
                z, elapsed = z + hparams.client_lr * mine, elapsed + hparams.client_lr * share
                fresh, last = fresh + gradient, w
            ends.append((z, elapsed, fresh / num_steps, mine, share))
        z, elapsed, mean, n, weight = (np.mean([end[i] for end in ends], axis=0) for i in range(5))
        v = hparams.b2 * v + (1 - hparams.b2) * mean**2 if metric == "adam" else v + mean**2
        rates = 1 / (np.sqrt(v) + hparams.adaptivity)
        moved = x - hparams.server_lr * rates * z
        x = soft(moved, hparams.server_lr * rates * elapsed * hparams.penalty_scale)
        found.append(x)
    return np.array(found)


IN_GATE = pytest.mark.slow, pytest.mark.gate


@pytest.mark.parametrize("metric", ["adam", pytest.param("adagrad", marks=IN_GATE)])
@pytest.mark.parametrize(
    "estimate",
    ["momentum", *(pytest.param(e, marks=IN_GATE) for e in ("plain", "variance_reduced"))],
)
def test_it_equals_a_slow_oracle(estimate, metric):
    hparams = fed_da.Hparams(
        client_lr=0.02, server_lr=0.9, b1=0.6, b2=0.9, adaptivity=0.05, penalty_scale=0.2
    )
    algorithm = fed_da(federations.quadratic, l1(), metric=metric, estimate=estimate)
    ours = models(algorithm, hparams, 10, fcojax.local_steps(3))
    np.testing.assert_allclose(ours, oracle(estimate, metric, hparams, 3, 10), rtol=0, atol=1e-12)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.parametrize("estimate", ["plain", "momentum", "variance_reduced"])
def test_with_one_full_step_of_everyone_the_limit_is_the_optimum(estimate):
    scale = 0.1
    curvature, slope = (
        mean.mean(axis=0) for mean in federations.client_means(federations.quadratic_clients())
    )
    best = np.zeros(4)
    for _ in range(3000):
        best = soft(best - 0.5 * (curvature @ best - slope), 0.5 * scale)
    assert 0 < np.count_nonzero(best) < 4
    algorithm = fed_da(federations.quadratic, l1(), estimate=estimate)
    hparams = fed_da.Hparams(client_lr=0.01, penalty_scale=scale)
    found = models(algorithm, hparams, 4000, fcojax.local_steps(1))[-1]
    np.testing.assert_allclose(found, best, atol=1e-8)
    np.testing.assert_array_equal(found == 0, best == 0)


def test_penalties_without_a_prox_in_the_metric_are_refused():
    with pytest.raises(ValueError, match="couples entries"):
        fed_da(federations.quadratic, nuclear())
    with pytest.raises(ValueError, match="metric is 'rms'"):
        fed_da(federations.quadratic, metric="rms")
