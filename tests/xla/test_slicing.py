"""Short slices of a long array, and clients that copy their rows before the first step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import problems
from fcojax.xla import rules
from fcojax.xla.loops import small_slice

LONG = np.arange(60.0).reshape(20, 3)


# One and four clients are read in a loop, 2000 by a gather.
@pytest.mark.parametrize("num_clients", [1, 4, 2000])
@pytest.mark.parametrize("size", [1, 5, 15])
def test_slices_are_correct(num_clients, size):
    starts = jnp.arange(num_clients) % (20 - size)
    found = jax.jit(jax.vmap(lambda start: small_slice(jnp.asarray(LONG), start, size)))(starts)
    np.testing.assert_array_equal(found, LONG[np.asarray(starts)[:, None] + np.arange(size)])


@pytest.mark.parametrize("mapped", [True, False])
def test_the_gradient_of_a_slice(mapped):
    def total(array):
        if mapped:
            return jnp.sum(jax.vmap(lambda start: small_slice(array, start, 2))(jnp.array([4, 5])))
        return jnp.sum(small_slice(array, jnp.array(4), 2))

    slope = jax.grad(total)(jnp.asarray(LONG))
    expected = np.zeros_like(LONG)
    expected[4:6] += 1
    if mapped:
        expected[5:7] += 1
    np.testing.assert_array_equal(slope, expected)


@pytest.mark.slow
@pytest.mark.parametrize("work", [fcojax.local_steps(4, 3), fcojax.local_epochs(2, 3)])
def test_copying_rows_first_gives_the_same_model(work):
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=(17, 3)), "y": rng.normal(size=17)}
    problem = problems.least_squares(fcojax.from_rows(rows, [6, 4, 1, 6]))
    algorithm = fcojax.algorithms.fed_avg(problem.loss)
    plan = fcojax.Plan(work, fcojax.uniform_cohort(cohort_size=3), client_chunk_size=2)

    def model(backend):
        with rules.pretend(backend):
            return fcojax.run(
                algorithm,
                fcojax.algorithms.fed_avg.Hparams(0.1, 1.0),
                jnp.zeros(3),
                problem.train,
                jax.random.key(1),
                num_rounds=5,
                plan=plan,
            )[0]

    np.testing.assert_allclose(model("cpu"), model("cuda"), rtol=1e-12)
