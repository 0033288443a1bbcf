"""Factored clients define the same problem as the original clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.problems import factored, factored_loss
from tests.support import federations


def least_squares():
    return fcojax.from_clients(federations.clients(), "examples"), federations.start()


def test_the_factored_problem_has_the_same_objective_gradient_and_weights():
    """With weights proportional to examples the objective is the mean over all examples."""
    data, params = least_squares()
    rows = factored(federations.loss, data, params)
    assert rows.sizes.tolist() == [1] * 5
    assert np.array_equal(rows.weights, data.weights)

    def ours(w):
        return jnp.average(factored_loss(w, rows.examples), weights=rows.weights)

    def theirs(w):
        return jnp.mean(federations.loss(w, data.examples))

    found, expected = (jax.value_and_grad(function)(params) for function in (ours, theirs))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
    np.testing.assert_allclose(*map(federations.as_vector, (found[1], expected[1])), rtol=1e-12)


def test_axes_and_curvatures_are_those_of_the_mean_hessian():
    clients = federations.quadratic_clients()
    rows = factored(federations.quadratic, fcojax.from_clients(clients), jnp.zeros(4)).examples
    curvatures, slopes = federations.client_means(clients)
    axes = np.asarray(rows.axes)
    np.testing.assert_allclose((axes * rows.curvatures[:, None]) @ axes.swapaxes(1, 2), curvatures)
    np.testing.assert_allclose(np.einsum("mij,mj->mi", axes, rows.slopes), slopes)
    np.testing.assert_allclose(rows.constant, 0, atol=1e-15)


def test_single_precision_clients_stay_so_and_are_factored_in_double():
    data, params = least_squares()
    clients, start = jax.tree.map(
        lambda leaf: leaf.astype(np.float32), (federations.clients(), params)
    )
    rows = factored(federations.loss, fcojax.from_clients(clients), start).examples
    assert {leaf.dtype for leaf in jax.tree.leaves(rows)} == {jnp.dtype("float32")}
    wide = factored(federations.loss, data, params).examples
    np.testing.assert_allclose(rows.curvatures, wide.curvatures, rtol=1e-5, atol=1e-6)


def huber(w, rows):
    residual = jnp.abs(rows["x"] @ w["kernel"] + w["bias"] - rows["y"])
    return jnp.where(residual < 20, 0.5 * residual**2, 20 * residual - 200)


def slowly(loss, name):
    return pytest.param(loss, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(huber, id="huber"),
        pytest.param(lambda w, rows: jnp.logaddexp(0.0, rows["x"] @ w["kernel"]), id="logistic"),
        slowly(lambda w, rows: jnp.abs(rows["x"] @ w["kernel"]), "absolute"),
        slowly(lambda w, rows: jnp.exp(rows["x"] @ w["kernel"]), "overflows at a far probe"),
        slowly(lambda w, rows: jnp.maximum(rows["x"] @ w["kernel"], 0.0) ** 2, "one-sided"),
    ],
)
def test_a_loss_that_is_not_quadratic_is_refused(loss):
    with pytest.raises(ValueError, match="the loss is not quadratic"):
        factored(loss, *least_squares())


def test_linear_and_constant_losses_are_quadratics():
    data, params = least_squares()
    rows = factored(lambda w, rows: rows["x"] @ w["kernel"] + 3.0, data, params).examples
    assert not np.any(rows.curvatures)
    np.testing.assert_allclose(rows.constant, 3.0)
