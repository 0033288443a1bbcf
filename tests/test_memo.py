"""Factories return one object for the same arguments, which is compiled once."""

import gc
import pathlib
import weakref

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import memo, transforms
from fcojax.memo import _MAX_PROGRAMS, jit_per, memoised
from fcojax.transforms.calculus.compose import translated
from tests.support import federations


def loss(params, rows):
    return (rows["x"] @ params["kernel"] + params["bias"] - rows["y"]) ** 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: fcojax.algorithms.fed_avg(loss),
        lambda: fcojax.algorithms.fed_dual_avg(loss, transforms.euclidean(transforms.l1())),
        lambda: fcojax.algorithms.fed_dyn(loss, solver=fcojax.algorithms.local_solvers.gd()),
        lambda: fcojax.algorithms.fed_manifold(loss, transforms.stiefel(method="svd")),
        lambda: transforms.on_subtree(transforms.l1(), transforms.named("kernel")),
        lambda: translated(transforms.l1(), {"kernel": np.ones(4), "bias": np.zeros(())}),
        lambda: transforms.box(-jnp.ones(2), jnp.ones(2)),
        lambda: transforms.diagonal(np.ones(3), transforms.l1()),
    ],
)
def test_factories_called_twice_return_one_object(make):
    assert make() is make()


def test_other_arguments_give_other_objects():
    weights = np.ones(3)
    first = transforms.diagonal(weights, transforms.l1())
    weights[0] = 2.0  # compared by contents, not by identity
    assert transforms.diagonal(weights, transforms.l1()) is not first
    assert transforms.elastic_net(0.5) is not transforms.elastic_net(0.25)
    assert fcojax.algorithms.fed_avg(lambda w, rows: 0) is not fcojax.algorithms.fed_avg(loss)


def test_an_algorithm_built_twice_is_traced_once():
    once, data = chex.assert_max_traces(loss, 1), fcojax.from_clients(federations.clients())
    for _ in range(2):
        chosen, plan = fcojax.algorithms.fed_avg(once), fcojax.local_steps(1)
        given = chosen, chosen.hparams_type(), federations.start(), data, jax.random.key(0), plan
        fcojax.run(*given, num_rounds=1)


def test_traced_arguments_are_not_cached():
    calls = []
    make = memoised(lambda x: calls.append(x) or x)
    jax.jit(lambda x: make(x) + make(x))(jnp.ones(2))
    assert len(calls) == 2


def test_programs_of_the_last_static_arguments_are_kept_and_others_let_go():
    """``jax.jit`` does the same for a function without references."""
    traced = []

    @jit_per(num_static=1)
    def apply(function, x):
        traced.append(function)
        return function(x)

    functions = [lambda x, shift=shift: x + shift for shift in range(_MAX_PROGRAMS + 1)]
    assert [float(apply(function, 0.0)) for function in functions] == list(range(len(functions)))
    assert float(apply(functions[-1], 0.0)) == _MAX_PROGRAMS and len(traced) == len(functions)
    traced.clear()
    first, last = weakref.ref(functions[0]), weakref.ref(functions[-1])
    functions.clear()
    gc.collect()
    assert first() is None and last() is not None
    assert apply.lower(last(), 1.0).as_text().startswith("module @jit_apply")


def test_programs_are_let_go_before_the_process_runs_out_of_mappings(monkeypatch):
    """A large program takes a thousand mappings, and 65 of them crashed the process."""
    traced = []

    @jit_per(num_static=1)
    def apply(shift, x):
        traced.append(shift)
        return x + shift

    monkeypatch.setattr(memo, "_num_mappings", lambda: 20_000 + 4_000 * len(traced))
    assert [float(apply(shift, 0.0)) for shift in (1, 2, 1)] == [1, 2, 1]
    assert traced == [1, 2]  # both are kept while there is room
    assert [float(apply(shift, 0.0)) for shift in (3, 3, 1)] == [3, 3, 1]
    assert traced == [1, 2, 3, 1]  # and then the last alone


def test_programs_of_the_last_shapes_are_kept_and_others_let_go():
    """Data objects of a thousand shapes made as many programs, each of some megabytes."""
    traced = []

    @jit_per(1, kept=3)
    def apply(function, x):
        traced.append(x.shape)
        return function(x)

    def double(x):
        return 2 * x

    def num_alive():
        gc.collect()
        return len(jax.devices()[0].client.live_executables())

    shapes = [np.ones(size) for size in range(1, 9)]
    before = num_alive()
    for x in shapes:
        np.testing.assert_array_equal(apply(double, x), 2 * x)
    assert len(traced) == 8 and num_alive() - before <= 2 * 3
    # One that is in use stays, also while others come.
    del traced[:]
    for x in shapes[:3]:
        apply(lambda x: x + 1, np.ones(1))
        apply(double, shapes[-1])
    assert traced.count((8,)) <= 1


def run_once(loss, data, number):
    algorithm = fcojax.algorithms.fed_avg(loss)
    hparams, plan = algorithm.hparams_type(client_lr=0.1), fcojax.local_steps(2)
    fcojax.run(algorithm, hparams, jnp.zeros(1), data, jax.random.key(0), plan, num_rounds=2)


def solve_once(loss, data, number):
    algorithm = fcojax.algorithms.fed_avg(loss)
    hparams, plan = algorithm.hparams_type(client_lr=0.1), fcojax.local_steps(1)
    given = algorithm, hparams, jnp.zeros(1), data, jax.random.key(0), plan
    certificate = lambda hparams, w, data: {"violation": w[0] ** 2}  # noqa: E731
    fcojax.solve(*given, max_rounds=20, certificate=certificate)


def problem_of(loss, data):
    return fcojax.problems.Problem(loss, data, None, lambda key: jnp.zeros(1))


def path_once(loss, data, number):
    strengths, hparams = [1 + number], fcojax.algorithms.fed_mid_osp.Hparams(0.1)
    fcojax.path(
        problem_of(loss, data), transforms.l1(), strengths=strengths, hparams=hparams, max_rounds=10
    )


def strength_once(loss, data, number):
    """Of one loss, whose strengths and data are arguments; JAX keeps 5 kB of each call."""
    chosen = fcojax.algorithms.fed_dual_avg(of_first, transforms.euclidean(transforms.l1()))
    hparams = chosen.hparams_type(client_lr=0.1, penalty_scale=0.1 + number / 1e4)
    data = fcojax.from_rows({"a": np.arange(4.0) + number}, [2, 2])
    given = chosen, hparams, jnp.zeros(1), data, jax.random.key(0), fcojax.local_steps(1)
    fcojax.run(*given, num_rounds=2)


def of_first(w, rows):
    return (w[0] - rows["a"]) ** 2


def optimum_once(loss, data, number):
    fcojax.reference.optimum(problem_of(loss, data), transforms.l1(), 1.0 + number, max_steps=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "times", "settled"),
    [
        (run_once, 1000, 50),
        (strength_once, 1000, 50),
        (solve_once, 300, 50),
        (path_once, 80, 35),
        (optimum_once, 100, 40),
    ],
)
def test_calls_with_new_functions_take_no_more_memory_than_the_first(call, times, settled):
    """A loop that defines its loss again; a process may have only 65,530 memory maps."""
    data, maps, rows = fcojax.from_rows({"a": np.arange(4.0)}, [2, 2]), [], []
    for number in range(times):
        call(lambda w, rows: (w[0] - rows["a"]) ** 2, data, number)
        maps.append(pathlib.Path("/proc/self/maps").read_bytes().count(b"\n"))
        rows.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]))
    # What tests before this one left behind goes in the first calls.
    assert max(maps[settled:]) <= 1.05 * maps[settled]
    assert max(rows[settled:]) <= 1.1 * rows[2 * settled]
