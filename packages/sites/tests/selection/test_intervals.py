"""Intervals from moments of the sites: pooled formulas, and their coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.problems.linear_models import half_square, poisson_loss
from fcojax.problems.logistic import logistic_loss
from fcojax.transforms import soft_threshold
from fcojax_sites.cox import cox_loss
from fcojax_sites.selection import intervals
from fcojax_sites.selection.intervals import debiased
from tests.selection.test_path import PENALTY, population

LOSSES = {
    "linear": half_square,
    "logistic": logistic_loss,
    "poisson": poisson_loss,
}


def pooled(kind, x, y, w):
    """Return gradient, Hessian and row gradients of the mean loss, by textbook formulas."""
    z = x @ w
    mean, curvature = {
        "linear": lambda: (z, np.ones_like(z)),
        "logistic": lambda: (1 / (1 + np.exp(-z)), np.exp(-z) / (1 + np.exp(-z)) ** 2),
        "poisson": lambda: (np.exp(z), np.exp(z)),
    }[kind]()
    slopes = (mean - y)[:, None] * x
    return slopes.mean(axis=0), (curvature[:, None] * x).T @ x / len(y), slopes


@pytest.mark.parametrize("kind", LOSSES)
def test_moments_of_sites_give_the_pooled_formulas(kind):
    data = population(kind, (40, 25, 35))
    problem = getattr(problems, kind)(data)
    rng = np.random.default_rng(0)
    model = {"kernel": jnp.array(np.r_[rng.normal(size=3) / 3, 0, 0, 0]), "bias": jnp.array(0.2)}
    x, y = (np.asarray(data.examples[name], float) for name in "xy")
    x, flat = np.column_stack([np.ones(100), x]), np.asarray(ravel_pytree(model)[0])
    for on in ("all", "support"):
        found = intervals(problem, model, on=on, level=0.9)
        kept = np.flatnonzero(flat) if on == "support" else np.arange(7)
        gradient, hessian, slopes = pooled(kind, x, y, flat)
        inverse = np.linalg.inv(hessian[np.ix_(kept, kept)])
        expected = np.zeros(7)
        expected[kept] = flat[kept] - inverse @ gradient[kept]
        gradient, hessian, slopes = pooled(kind, x, y, expected)
        inverse = np.linalg.inv(hessian[np.ix_(kept, kept)])
        expected[kept] -= inverse @ gradient[kept]
        meat = slopes[:, kept].T @ slopes[:, kept] / 100**2
        errors = np.sqrt(np.diag(inverse @ meat @ inverse) * 100 / (100 - kept.size))
        estimate, error, low, high = (np.asarray(ravel_pytree(c)[0]) for c in found[:4])
        np.testing.assert_allclose(estimate, expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(error[kept], errors, rtol=0, atol=1e-6)
        np.testing.assert_allclose(high[kept] - low[kept], 2 * 1.6448536 * errors, atol=1e-6)
        assert not np.delete(error, kept).any()
        assert str(found).count("kernel[") == np.count_nonzero(kept)  # without the bias
    # Down: a model, twice. Up: a gradient and two symmetric matrices of 7 rows.
    assert found.ledger.by_client()[0] == (112, 112 * 9)


@pytest.mark.slow
def test_the_debiased_lasso_is_least_squares_and_the_refit_its_own_estimate():
    data = population(sizes=(40, 30, 30))
    problem = problems.linear(data)
    chosen = fcojax_sites.select(problem, PENALTY, strengths=4, least=0.05)
    x, y = (np.asarray(data.examples[name]) for name in "xy")
    answer = np.linalg.lstsq(np.column_stack([np.ones(100), x]), y)[0]
    found = intervals(problem, chosen.model)
    np.testing.assert_allclose(ravel_pytree(found.estimate)[0], answer, atol=1e-6)
    refit = intervals(problem, chosen.refit, on="support")
    np.testing.assert_allclose(refit.estimate["kernel"], chosen.refit["kernel"], atol=1e-4)


@pytest.mark.slow
def test_a_lasso_of_each_column_replaces_the_inverse():
    """Near strength zero it is the inverse; otherwise its rows satisfy their KKT conditions."""
    data = population(sizes=(40, 30, 30))
    arguments = half_square, MODEL, data.examples, jnp.full(100, 0.01), jnp.ones(7, bool)
    exact = debiased(*arguments)
    near = debiased(*arguments, jnp.array(1e-9))
    np.testing.assert_allclose(near[0], exact[0], atol=1e-6)
    far = debiased(*arguments, jnp.array(0.05))
    assert 1e-4 < np.abs(far[0] - exact[0]).max() < 0.2
    wide = fcojax.from_rows(
        {"x": np.random.default_rng(0).normal(size=(3, 8)), "y": np.ones(3)}, [2, 1]
    )
    problem = problems.least_squares(wide)
    with pytest.raises(ValueError, match="nodewise="):
        intervals(problem, jnp.zeros(8))
    assert np.isfinite(intervals(problem, jnp.zeros(8), nodewise=0.1).estimate).all()


MODEL = {"kernel": jnp.zeros(6), "bias": jnp.array(0.0)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSES)
def test_in_single_precision_units_of_features_do_not_matter(kind):
    """A table as it comes, with ages, counts and an intercept; 2000 +- 0.1 says too little."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(400, 4))
    effects = np.array([1.0, -0.5, 0.1, 0.0]) / (2 if kind == "poisson" else 1)
    z = drawn @ effects
    y = {
        "linear": lambda: z + rng.normal(size=400),
        "logistic": lambda: rng.binomial(1, 1 / (1 + np.exp(-z))),
        "poisson": lambda: rng.poisson(np.exp(z)),
    }[kind]()
    centre, unit = np.array([50.0, 1e5, 0.0, 5.0]), np.array([10.0, 1e4, 0.01, 1.0])

    def found(dtype, centre, unit):
        rows = {"x": (centre + unit * drawn).astype(dtype), "y": y.astype(dtype)}
        problem = getattr(problems, kind)(fcojax.from_rows(rows, [150, 250], weights="examples"))
        model = {"kernel": effects / unit, "bias": -np.sum(centre * effects / unit)}
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)
        of = intervals(problem, model)
        return [np.asarray(ravel_pytree(part)[0], float) for part in (of.estimate, of.error)]

    single, double = (found(dtype, centre, unit) for dtype in (np.float32, np.float64))
    assert np.abs((single[0] - double[0]) / double[1]).max() < 1e-4
    np.testing.assert_allclose(single[1], double[1], rtol=1e-3)
    with pytest.raises(ValueError, match="5 parameters is singular in float32; centre the feat"):
        found(np.float32, np.array([2000.0, 0.0, 0.0, 0.0]), np.array([0.1, 1.0, 1.0, 1.0]))


def test_refusals():
    random = problems.RandomLoss(lambda params, rows, key: rows["y"])
    for loss in (random, cox_loss):
        with pytest.raises(
            ValueError, match=f"a {type(loss).__name__}, which is not a sum over rows"
        ):
            intervals(problems.linear(population())._replace(loss=loss), MODEL)
    with pytest.raises(ValueError, match="level is 95; pass a number above 0 and below 1"):
        intervals(problems.linear(population()), MODEL, level=95)


DIM, NUM_ROWS, STRENGTH = 8, 150, 0.08
TRUTH = jnp.array([1.0, -0.5, 0.1, 0.05, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("kind", LOSSES)
def test_intervals_of_a_thousand_federations_hold_the_truth_as_often_as_they_say(kind, dtype):
    """Four sites of 150 rows whose features differ: strong, weak and no effects, debiased.

    The refit has its support fixed to that of the truth. On a support that the lasso chose on the
    same rows weak effects are covered too seldom, because those that are left out have no interval,
    and absent ones that enter do so where their noise is large.
    """
    loss = LOSSES[kind]

    def federation(key):
        keys = jax.random.split(key, 4)
        means = jax.random.normal(keys[0], (4, DIM)) / 4
        x = jax.random.normal(keys[1], (4, NUM_ROWS, DIM)) + means[:, None]
        x = x.reshape(-1, DIM) / (2 if kind == "poisson" else 1)
        z = x @ TRUTH
        y = {
            "linear": lambda: (
                z + (0.5 + 0.5 * jnp.abs(x[:, 0])) * jax.random.normal(keys[2], z.shape)
            ),
            "logistic": lambda: jax.random.bernoulli(keys[2], jax.nn.sigmoid(z)).astype(z.dtype),
            "poisson": lambda: jax.random.poisson(keys[2], jnp.exp(z)).astype(z.dtype),
        }[kind]()
        rows, weights = (
            {"x": x.astype(dtype), "y": y.astype(dtype)},
            jnp.full(z.shape, 1 / z.size, dtype),
        )

        def model(w):
            return {"kernel": w, "bias": jnp.zeros((), dtype)}

        def lasso(_, w):
            slope = jax.grad(lambda w: jnp.mean(loss(model(w), rows)))(w)
            return soft_threshold(w - 0.5 * slope, 0.5 * STRENGTH)

        found = jax.lax.fori_loop(0, 200, lasso, jnp.zeros(DIM, dtype))
        everything, support = jnp.ones(DIM + 1, bool), jnp.append(True, TRUTH != 0)
        estimates = [debiased(loss, model(found), rows, weights, everything)]
        unravel = ravel_pytree(model(found))[1]
        for kept in (support, jnp.append(True, found != 0)):

            def newton(_, flat, kept=kept):
                return debiased(loss, unravel(flat), rows, weights, kept)[0]

            start = jnp.where(kept, ravel_pytree(model(found))[0], 0)
            flat = jax.lax.fori_loop(0, 5, newton, start)
            estimates.append(debiased(loss, unravel(flat), rows, weights, kept))
        truth = jnp.append(0.0, TRUTH).astype(dtype)
        covers = [
            jnp.abs(estimate - truth) <= 1.959964 * jnp.sqrt(jnp.diagonal(covariance))
            for estimate, covariance, _ in estimates
        ]
        return [*covers, jnp.append(True, found != 0)]

    keys = jax.random.split(jax.random.key(1), 1000)
    held = jax.jit(lambda keys: jax.lax.map(federation, keys, batch_size=50))(keys)
    strong, weak, none = slice(0, 2), slice(2, 4), slice(4, None)
    shares = [
        [np.mean(np.asarray(column)[:, 1:][:, part]) for part in (strong, weak, none)]
        for column in held
    ]
    print(kind, np.round(shares, 3).tolist())
    debiased_share, refit_share, chosen_share, _ = shares
    assert min(debiased_share) >= 0.93 and max(debiased_share) <= 0.97
    assert min(refit_share[:2]) >= 0.93 and max(refit_share[:2]) <= 0.97
    assert chosen_share[1] < 0.93
