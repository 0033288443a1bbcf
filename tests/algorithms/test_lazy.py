"""Lazy clients against the same algorithm on whole vectors, and what they must not touch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, problems
from fcojax.engine.client_loop import local_handle
from fcojax.transforms import euclidean, flat, l1, l2, l2_squared, named, on_subtree
from fcojax.transforms.mirrors.mirror import side_by_side
from fcojax.xla.jaxprs import inner_programs

DIM, WIDTH, SIZES = 400, 4, [3, 7, 1, 5, 4]
KEY = jax.random.key(3)
MIRROR = euclidean(on_subtree(l1(), named("kernel")))


@functools.cache
def task(dense=False):
    """Clients of one to seven rows; columns that occur twice, padding, and an empty row."""
    rng = np.random.default_rng(0)
    num_rows = sum(SIZES)
    index = rng.integers(DIM, size=(num_rows, WIDTH)).astype(np.int32)
    value = rng.standard_normal((num_rows, WIDTH))
    index[::3, 1] = index[::3, 0]
    index[1::4, 2:], value[1::4, 2:] = 0, 0
    index[2], value[2] = 0, 0
    x = problems.SparseRows(index, value, DIM)
    y = np.asarray(value.sum(axis=1) > 0, np.int32)
    return problems.logistic(fcojax.from_rows({"x": x.to_dense() if dense else x, "y": y}, SIZES))


def start():
    kernel = np.random.default_rng(1).standard_normal(DIM)
    return {"kernel": jnp.asarray(kernel), "bias": jnp.array(0.1)}


@pytest.mark.slow
def test_dual_averaging_is_that_of_dense_features():
    """A run with cohorts, ragged clients and several side by side."""
    whole = algorithms.fed_dual_avg(task().loss, MIRROR)
    hparams = whole.hparams_type(client_lr=0.3, penalty_scale=0.02)
    plan = fcojax.Plan(
        fcojax.local_epochs(2, 3), fcojax.uniform_cohort(cohort_size=3), client_chunk_size=3
    )
    models = []
    for algorithm, dense in ((algorithms.lazy(whole), False), (whole, True)):
        model, history = fcojax.run(
            algorithm, hparams, start(), task(dense).train, KEY, plan, num_rounds=6
        )
        assert not int(np.sum(history["dropped"]))
        models.append(model)
    jax.tree.map(lambda *two: np.testing.assert_allclose(*two, atol=1e-12), *models)
    assert np.count_nonzero(models[0]["kernel"] == 0) > 5


LOSS = task().loss
KERNELS = on_subtree(l1(), named("kernel"))
GEOMETRY = {"penalty": KERNELS, "mirror": MIRROR, "manifold": flat()}


def built(factory):
    return factory(LOSS, *(GEOMETRY[name] for name in factory.geometry))


BUILT = {name: built(f) for name, f in vars(algorithms).items() if hasattr(f, "geometry")}
LAZY = {name: algorithm for name, algorithm in BUILT.items() if algorithm.entrywise}
CASES = [
    ("fed_dual_avg", fcojax.local_steps(3, 2)),
    ("fed_dual_avg", fcojax.local_steps(2)),
    ("fed_avg", fcojax.local_epochs(2, 3)),
    pytest.param("fed_gd", fcojax.local_steps(2), marks=pytest.mark.slow),
    *(
        pytest.param(name, fcojax.local_steps(3, 2), marks=pytest.mark.slow)
        for name in LAZY
        if name not in ("fed_dual_avg", "fed_avg", "fed_gd")
    ),
]


@pytest.mark.parametrize("name, work", CASES)
def test_entrywise_algorithms_send_what_they_send_on_whole_vectors(name, work):
    whole = LAZY[name]
    hparams = whole.hparams_type(client_lr=0.3)
    zero = jnp.zeros((), jnp.int32)
    local = local_handle(task().train, work, KEY, zero, zero + 1, zero + 1)

    @jax.jit
    def uploads(params):
        message = whole.broadcast(hparams, whole.init(hparams, params)[0])
        given = hparams, message, (), local, KEY
        return [one.client_update(*given).upload for one in (algorithms.lazy(whole), whole)]

    lazy, full = (jax.tree.leaves(upload) for upload in uploads(start()))
    for one, other in zip(lazy, full, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)
    assert 5 < max(np.count_nonzero(leaf) for leaf in lazy) <= 7 * WIDTH


def bodies(program):
    """The bodies of all loops of a traced program."""
    for equation in program.eqns:
        for inner in inner_programs(equation):
            if equation.primitive.name in ("scan", "while"):
                yield inner
            yield from bodies(inner)


@pytest.mark.parametrize("lazily", [True, False])
def test_no_step_computes_anything_as_long_as_the_model(lazily):
    whole = algorithms.fed_dual_avg(task().loss, MIRROR)
    algorithm = algorithms.lazy(whole) if lazily else whole
    hparams = algorithm.hparams_type()
    server, _ = algorithm.init(hparams, {"kernel": jnp.zeros(DIM), "bias": jnp.zeros(())})
    message = algorithm.broadcast(hparams, server)
    zero = jnp.zeros((), jnp.int32)
    local = local_handle(task().train, fcojax.local_steps(3, 2), KEY, zero, zero + 1, zero + 1)
    traced = jax.make_jaxpr(lambda z: algorithm.client_update(hparams, z, (), local, KEY))
    shapes = {
        result.aval.shape
        for body in bodies(traced(message).jaxpr)
        for equation in body.eqns
        for result in equation.outvars
    }
    slots = 3 * 2 * WIDTH
    assert ((DIM,) in shapes) is not lazily and ((slots,) in shapes) is lazily


def test_lazy_refuses_penalties_that_are_not_entrywise():
    loss = task().loss
    group = euclidean(on_subtree(l2(), named("kernel")))
    for algorithm in (
        algorithms.fed_mid(loss, MIRROR),
        algorithms.fed_avg_subgradient(loss, l1()),
        algorithms.fed_dual_avg(loss, group),
        algorithms.fed_opt(loss, l1(), client_prox=True, server_prox=False),
        algorithms.scaffold(loss),
    ):
        with pytest.raises(ValueError, match="not entrywise"):
            algorithms.lazy(algorithm)
    two = side_by_side(named("kernel"), euclidean(l1()), euclidean(l2_squared()))
    assert algorithms.fed_dual_avg(loss, two).entrywise
    assert algorithms.lazy(LAZY["fed_avg"]) is algorithms.lazy(LAZY["fed_avg"])
