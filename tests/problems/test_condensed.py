"""Few rows with the same squared errors."""

import jax
import numpy as np
import pytest

import fcojax
from fcojax.problems import condensed, population_loss

SIZES = (30, 11, 25)


def rows(dim=4, shift=2.0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sum(SIZES), dim)) + shift
    return fcojax.from_rows({"x": x, "y": rng.standard_normal(sum(SIZES))}, SIZES, [1.0, 4.0, 2.0])


PROBLEMS = {
    "ridge": lambda: fcojax.problems.least_squares(rows(), ridge=0.3),
    "bias": lambda: fcojax.problems.linear(rows()),
    "matrices": lambda: fcojax.problems.low_rank(
        num_clients=3, num_examples=20, shape=(2, 3), true_rank=1
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_loss_and_its_gradient_are_those_of_all_rows(name):
    problem = PROBLEMS[name]()
    few = condensed(problem.loss, problem.train)
    assert few.num_clients == 1 and 2 * few.max_size < problem.train.sizes.sum()
    point = jax.tree.map(
        lambda leaf: leaf + np.random.default_rng(1).normal(size=leaf.shape).astype(leaf.dtype),
        problem.init(jax.random.key(0)),
    )
    slope = jax.jit(jax.value_and_grad(lambda w, data: population_loss(problem.loss, w, data)))
    rtol = 1e-5 if name == "matrices" else 1e-12  # float32 rows
    for one, other in zip(
        *(jax.tree.leaves(slope(point, data)) for data in (problem.train, few)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def test_others_are_unchanged():
    data = rows()
    assert condensed(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 4, data) is data
    loss = fcojax.problems.linear(data).loss
    wide = rows(dim=60)
    assert condensed(loss, wide) is wide  # as many rows as features
    coarse = fcojax.from_rows({**data.examples, "x": data.examples["x"].astype("bfloat16")}, SIZES)
    assert condensed(loss, coarse) is coarse
    constant = fcojax.from_rows({**data.examples, "y": np.ones(sum(SIZES))}, SIZES)
    assert condensed(loss, constant) is constant  # singular: the bias fits all rows


def test_rows_on_disk_are_not_read(tmp_path):
    """A process of several may have no file with all of them."""
    data = rows()
    fcojax.save_clients(data, tmp_path / "clients")
    there = fcojax.open_clients(tmp_path / "clients")
    assert condensed(fcojax.problems.linear(data).loss, there) is there
