"""Steps in coordinates of the rows end where plain steps end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import tree
from fcojax.algorithms import linear_steps, mean_gradient
from fcojax.engine.members import local_handle
from fcojax.problems import with_products
from fcojax.transforms import euclidean, l1, named, on_subtree
from fcojax.xla.jaxprs import equations

SIZES = (1, 4, 2, 3)
DIM = 8_192
KERNEL = on_subtree(l1(), named("kernel"))
KEY = jax.random.key(0)
ALGORITHMS = {
    "fed_avg": lambda loss: fcojax.algorithms.fed_avg(loss),
    "fed_mid_osp": lambda loss: fcojax.algorithms.fed_mid_osp(loss, euclidean(KERNEL)),
    "fed_prox": lambda loss: fcojax.algorithms.fed_prox(loss),
    "scaffold, feedback": lambda loss: fcojax.algorithms.scaffold(loss, KERNEL, prox="feedback"),
    "scaffold, gradient": lambda loss: fcojax.algorithms.scaffold(
        loss, KERNEL, prox="server", control="gradient"
    ),
    "prox_skip": lambda loss: fcojax.algorithms.prox_skip(loss, KERNEL),
    "prox_skip, geometric": lambda loss: fcojax.algorithms.prox_skip(
        loss, KERNEL, steps="geometric"
    ),
}


def population(labels="classes", dtype: type = float, sizes=SIZES, dim=DIM):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sum(sizes), dim)) / np.sqrt(dim)
    y = np.arange(len(x)) % 3 if labels == "classes" else rng.standard_normal(len(x)).astype(dtype)
    if labels == "two":
        y = (y > 0).astype(int)
    return fcojax.from_rows({"x": x.astype(dtype), "y": y}, sizes, weights="examples")


def ends(problem, make, plan, num_rounds=4, place=lambda data: data, key=KEY, **hparams):
    """The models with products and without, as vectors; the latter is checked to be plain."""
    algorithm = make(problem.loss)
    assert problem.train.products is not None
    scale = {"penalty_scale": 1e-3} if "penalty_scale" in algorithm.hparams_type._fields else {}
    hparams = algorithm.hparams_type(**{"client_lr": 0.5, **scale, **hparams})
    dtype = problem.train.examples["x"].dtype
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), problem.init(jax.random.key(1)))
    found = []
    for data in (problem.train, problem.train.with_products(None)):
        model, _ = fcojax.run(
            algorithm, hparams, start, place(data), key, plan, num_rounds=num_rounds
        )
        found.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)]))
    assert np.abs(found[1]).max() > 0.01 and np.isfinite(found[1]).all()
    return found


def assert_same(found, rtol=1e-12):
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=rtol * np.abs(found[1]).max())


# Each row compiles two programs of half a second; the others make the same call, and fed_avg is
# in the test of two devices.
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*ALGORITHMS][:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prox_skip, geometric", *SLOW])
def test_steps_in_coordinates_end_where_plain_steps_do(name):
    """With a bias, clients of different sizes, and cohorts."""
    problem = fcojax.problems.logistic(population("two"))
    plan = fcojax.Plan(fcojax.local_steps(5), fcojax.uniform_cohort(cohort_size=2))
    found = ends(problem, ALGORITHMS[name], plan)
    assert (found[0] != found[1]).any()  # by another way
    assert_same(found)


def test_derivatives_of_steps_are_those_of_plain_steps():
    """In the rate and the start, forward and in reverse."""
    data = with_products(population("two", sizes=(4,)))
    loss, first = fcojax.problems.logistic(data).loss, jnp.int32(0)
    work, gradient = fcojax.local_steps(5), mean_gradient(loss)

    def moved(at, data):
        local = local_handle(data, work, KEY, first, first, first)
        start = {"kernel": jnp.full(DIM, at[1]), "bias": at[1]}
        step = lambda w, batch: tree.add_scaled(w, -at[0], gradient(w, batch))  # noqa: E731
        return tree.vdot(*[linear_steps(loss, local, step, start)] * 2)

    at = jnp.array([0.5, 0.1])
    expected = jax.jit(jax.grad(lambda at: moved(at, data.with_products(None))))(at)
    reverse, forward = jax.jit(
        lambda at: [take(lambda at: moved(at, data))(at) for take in (jax.grad, jax.jacfwd)]
    )(at)
    np.testing.assert_allclose([reverse, forward], [expected] * 2, rtol=1e-9)
    assert np.abs(expected).min() > 1e-3


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (lambda data: fcojax.problems.least_squares(data, ridge=0.3), "numbers"),
        (lambda data: fcojax.problems.softmax(data, num_classes=3), "classes"),
        pytest.param(fcojax.problems.linear, "numbers", marks=pytest.mark.slow),
        pytest.param(fcojax.problems.squared_hinge, "two", marks=pytest.mark.slow),
    ],
)
def test_every_linear_problem_has_steps_in_coordinates(make, labels):
    """Several outputs, and a ridge, which shrinks the start of the steps."""
    # Least squares finds its minimiser from a matrix of dim x dim: few features, and more rows.
    problem = make(population(labels, sizes=(5, 32, 20, 9), dim=512))
    found = ends(problem, ALGORITHMS["fed_prox"], fcojax.local_steps(3), prox_scale=0.2)
    assert (found[0] != found[1]).any()
    assert_same(found)


@pytest.mark.parametrize(
    "sizes",
    [(3, 1, 2), *(pytest.param(even, marks=pytest.mark.slow) for even in (SIZES, (2, 2, 2, 2)))],
)
def test_products_are_spread_with_the_clients(sizes):
    """The rows of a device and its clients are padded."""
    mesh = fcojax.devices.device_mesh(clients=2)
    problem = fcojax.problems.logistic(population("two", sizes=sizes))
    found = ends(
        problem,
        ALGORITHMS["fed_avg"],
        fcojax.local_steps(4),
        place=lambda data: fcojax.devices.shard_clients(data, mesh),
    )
    assert (found[0] != found[1]).any()
    assert_same(found)


def test_products_do_not_survive_other_rows():
    data = with_products(population("two"))
    halved = {**data.examples, "x": data.examples["x"] / 2}
    assert dataclasses.replace(data, examples=halved).products is None
    assert data.select([1, 2]).products is None
    pairs = population("two", sizes=(2, 4))
    kept, held_out = fcojax.problems.hold_out_examples(with_products(pairs), 0.5, KEY)
    assert kept.products is None and held_out.products is None
    leaves, structure = jax.tree.flatten(data)
    assert jax.tree.unflatten(structure, leaves).products is data.products
    np.testing.assert_array_equal(data.to_device().products, data.products)


def test_products_are_kept_where_they_pay():
    def products(rows, dim, dtype: type = float):
        x = np.ones((rows, dim), dtype)
        return with_products(fcojax.from_rows({"x": x}, [rows])).products

    assert products(2, 8_192) is not None
    assert products(2, 8_191) is None  # little work
    assert products(512, 8_191) is None  # many rows
    assert products(2, 8_192, np.int32) is None
    on_host = fcojax.from_rows({"x": np.ones((2, 8_192))}, [2], on_host=True)
    assert with_products(on_host).products is None


def traced(data, algorithm, work):
    """Return the program of a round."""
    hparams = algorithm.hparams_type()
    start = {"kernel": jnp.zeros(DIM), "bias": jnp.zeros(())}
    state = fcojax.start(algorithm, hparams, start, data, KEY, work)

    def one_round(state):
        return fcojax.advance(algorithm, hparams, state, data, work, num_rounds=1)[0]

    return jax.make_jaxpr(one_round)(state).jaxpr


@pytest.mark.parametrize(
    ("work", "plain"),
    [
        (fcojax.local_steps(1), True),
        (fcojax.local_steps(3, batch_size=2), True),
        (fcojax.local_steps(3), False),
    ],
)
def test_single_steps_and_minibatches_are_plain(work, plain):
    """They have the operations that clients without products have."""
    problem = fcojax.problems.logistic(population("two"))
    programs = [
        [
            e.primitive.name
            for e in equations(traced(data, ALGORITHMS["fed_avg"](problem.loss), work))
        ]
        for data in (problem.train, problem.train.with_products(None))
    ]
    assert (programs[0] == programs[1]) == plain
