"""Cox regression stratified by client, against the textbook formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_avg
from fcojax.problems import SparseRows, population_loss
from fcojax_sites.cox import cox, cox_loss

KEY = jax.random.key(0)


def survival():
    rng = np.random.default_rng(0)
    sizes = [7, 4]
    rows = {
        "x": rng.normal(size=(11, 2)),
        "time": rng.integers(1, 5, size=11).astype(float),  # ties
        "event": rng.integers(0, 2, size=11),
    }
    return fcojax.from_rows(rows, sizes, weights="examples")


def partial_likelihood(kernel, data):
    """The textbook formula: for each event, the risks of its client's rows still at risk."""
    total, start = 0.0, 0
    for size in data.sizes.tolist():
        x, time, event = (
            np.asarray(data.examples[name])[start : start + size] for name in ("x", "time", "event")
        )
        risk = x @ kernel
        for i in np.flatnonzero(event):
            total += np.log(np.sum(np.exp(risk[time >= time[i]]))) - risk[i]
        start += size
    return total


def test_cox_is_the_partial_likelihood_stratified_by_client():
    data = survival()
    kernel = np.array([0.5, -1.0])
    value = population_loss(cox_loss, jnp.asarray(kernel), data)
    assert float(value) * 11 == pytest.approx(partial_likelihood(kernel, data), rel=1e-12)
    # A round of one step is a gradient step of it, also for padded clients.
    plan = fcojax.Plan(fcojax.local_steps(1), client_chunk_size=2)
    model, _ = fcojax.run(
        fed_avg(cox_loss),
        fed_avg.Hparams(client_lr=0.1),
        jnp.asarray(kernel),
        data,
        KEY,
        plan,
        num_rounds=1,
    )
    step = 1e-6
    slopes = [
        (partial_likelihood(kernel + h, data) - partial_likelihood(kernel - h, data)) / (2 * step)
        for h in step * np.eye(2)
    ]
    np.testing.assert_allclose(model, kernel - 0.1 * np.array(slopes) / 11, atol=1e-8)


def test_cox_takes_no_minibatches():
    with pytest.raises(ValueError, match="pass batch_size=None"):
        fcojax.run(
            fed_avg(cox_loss),
            fed_avg.Hparams(),
            jnp.zeros(2),
            survival(),
            KEY,
            fcojax.local_steps(1, 2),
            num_rounds=1,
        )


def test_an_event_is_0_or_1():
    rows = {"x": np.ones((2, 1)), "time": np.array([1.0, 2.0]), "event": np.array([0, 2])}
    with pytest.raises(ValueError, match="field event has values other than 0 and 1"):
        cox(fcojax.from_rows(rows, [2]))


def test_fields_of_other_shapes_would_broadcast_and_are_refused():
    good = {"x": np.ones((2, 3)), "time": np.array([0, 1]), "event": np.array([0, 1])}
    data = fcojax.from_rows(good, [1, 1])
    cox(data, data)
    for field in ("time", "event"):
        other = fcojax.from_rows(good | {field: np.zeros((2, 1), int)}, [1, 1])
        for given, owner in (((other,), "training"), ((data, other), "validation")):
            with pytest.raises(ValueError, match=rf"{field} of the {owner} data has shape"):
                cox(*given)


def test_sparse_features_have_the_likelihood_of_the_matrix():
    data, index = survival(), np.tile(np.arange(2, dtype=np.int32), (11, 1))
    rows = data.examples | {"x": SparseRows(index, np.asarray(data.examples["x"]), 2)}
    sparse = fcojax.from_rows(rows, data.sizes, weights="examples")
    found = [population_loss(cox_loss, jnp.array([0.5, -1.0]), some) for some in (data, sparse)]
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-12)
