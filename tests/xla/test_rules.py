"""The rules for accelerators give the same numbers as those for a CPU."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import networks, transforms
from fcojax.engine.members import local_handle
from fcojax.xla import conditionals, jaxprs, loops, rules
from tests.support import federations

V = np.random.default_rng(0).standard_normal(5000)
Y = np.random.default_rng(1).standard_normal((6, 6))
MAPS = {
    "simplex": lambda: transforms.simplex().prox(jnp.asarray(V), 1.0, 3.0),
    "l1_ball": lambda: transforms.l1_ball().prox(jnp.asarray(V[:50]), 1.0, 3.0),
    "a thousand zeros": lambda: transforms.simplex().prox(jnp.zeros(1000), 1.0, 1.0),
    "polar": lambda: transforms.polar(jnp.asarray(Y)),
    "polar of a tall matrix": lambda: transforms.polar(jnp.asarray(V[:60].reshape(20, 3))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
def test_unrolling_the_usual_iterations_changes_nothing(name):
    expected = np.asarray(jax.jit(lambda: MAPS[name]())())
    with rules.pretend("cuda"):
        found = np.asarray(jax.jit(lambda: MAPS[name]())())
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("passes", [0, 3, 5, 9])
def test_an_unrolled_loop_stops_at_the_same_iteration(passes):
    def count(limit):
        return conditionals.loop(lambda n: n < limit, lambda n: n + 1, jnp.zeros((), int), passes)

    assert int(count(5)) == 5
    with rules.pretend("tpu"):
        assert [int(jax.jit(count)(limit)) for limit in (0, 5, 7)] == [0, 5, 7]


ABSENT = fcojax.Plan(fcojax.local_steps(2), fcojax.coin_flips(0.5), client_chunk_size=9)
SAMPLED = fcojax.Plan(fcojax.local_steps(3), fcojax.uniform_cohort(cohort_size=3))
ALONE = fcojax.Plan(fcojax.local_epochs(1, 3), client_chunk_size=1)
# An epoch's masked steps, and clients where a branch would wait.
PLANS = {"an epoch": ("fed_dual_avg", ALONE), "absent clients": ("fed_avg", ABSENT)}
SLOW = {
    "written out": ("fed_dual_avg", SAMPLED._replace(work=fcojax.local_steps(3, 2))),
    "some full steps": ("fed_dual_avg", ALONE._replace(work=fcojax.local_steps((1, 3, 2, 2, 3)))),
    "full epochs": ("fed_dual_avg", ALONE._replace(work=fcojax.local_epochs(2))),
    "full steps": ("fed_mid", SAMPLED),
    "many": ("fed_avg", SAMPLED._replace(work=fcojax.local_steps(19, 2))),
}


@pytest.mark.parametrize("case", [*PLANS, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_few_kernels_compute_the_same_model_and_history(case):
    name, plan = (PLANS | SLOW)[case]
    data = fcojax.from_clients(federations.clients())
    given = federations.algorithm(name), federations.hparams(name), federations.start()

    how = {"num_rounds": 6, "eval_every": 2, "observe": lambda hparams, w, context: {"w": w}}

    def ends(data):
        return fcojax.run(*given, data, jax.random.key(3), plan, **how)

    model, history = ends(data)
    with rules.pretend("cuda"):
        assert case != "absent clients" or "cond[" not in str(jax.make_jaxpr(ends)(data))
        found, found_history = ends(data)
    np.testing.assert_allclose(*map(federations.as_vector, (found, model)), rtol=1e-12)
    assert jax.tree.structure(history) == jax.tree.structure(found_history)
    for name in ("participants", "bytes_up", "round"):
        np.testing.assert_array_equal(found_history[name], history[name])


def num_products(function, *args):
    found = jaxprs.equations(jax.make_jaxpr(function)(*args).jaxpr)
    return sum(each.primitive.name == "dot_general" for each in found)


def test_a_small_sweep_on_a_gpu_adds_terms_in_place_of_products():
    data = fcojax.from_clients(federations.clients())
    algorithm, start = federations.algorithm("fed_dual_avg"), federations.start()
    hparams = federations.hparams("fed_dual_avg")

    def ends(points):
        grid = jax.tree.map(lambda leaf: jnp.linspace(leaf, leaf / 2, points), hparams)
        given = algorithm, grid, start, data, jax.random.key(3)[None], SAMPLED
        return fcojax.sweep(*given, num_rounds=6)[0]

    def one_run(data):
        given = algorithm, hparams, start, data, jax.random.key(3), SAMPLED
        return fcojax.run(*given, num_rounds=6)[0]

    expected, in_each = ends(5), num_products(one_run, data)
    assert in_each > 0 and num_products(lambda: ends(5)) == in_each
    with rules.pretend("cuda"):
        found = ends(5)
        # Not in a run, whose products XLA itself writes as sums, and not if there are many terms.
        counts = [num_products(lambda n=n: ends(n)) for n in (1, 5, 100_000)]
        assert num_products(one_run, data) > 0 and counts[1] == 0 < counts[0] == counts[2]
        with jax.default_matmul_precision("tensorfloat32"):
            assert num_products(lambda: ends(5)) == counts[0]
    with rules.pretend("tpu"):
        assert num_products(lambda: ends(5)) > 0
    np.testing.assert_allclose(*map(federations.as_vector, (found, expected)), rtol=1e-12)


@pytest.mark.parametrize("spec", ["nd,d->n", "dn,d->n", "d,nd->n", "d,dn->n", "nmd,d->nm", "d,d->"])
def test_a_sum_of_terms_is_the_product(spec):
    rng = np.random.default_rng(2)
    left, right = (
        jnp.asarray(rng.standard_normal([{"n": 3, "d": 4, "m": 2}[axis] for axis in axes]))
        for axes in spec.partition("->")[0].split(",")
    )

    def product(left, right):
        return jnp.einsum(spec, left, right, precision="highest")

    def slope(function):
        return jax.grad(lambda *given: jnp.sum(function(*given) ** 3), (0, 1))(left, right)

    with rules.pretend("gpu"), rules.side_by_side(5):
        summed = jaxprs.fast_inside_loops(product)
        assert num_products(summed, left, right) == 0
        found = summed(left, right), slope(summed)
    expected = product(left, right), slope(product)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_a_loop_of_so_many_rounds_traces_one_and_stores_what_a_loop_does():
    def body(carry, _):
        number, key = carry
        found = {"integer": number, "real": number / 2, "row": jnp.stack([number, 2 * number])}
        return (number + 1, jax.random.fold_in(key, number)), found

    def some(num):
        once = chex.assert_max_traces(body, 1)
        return loops.scan_some(once, (jnp.int32(1), jax.random.key(0)), 3, num)

    (last, key), found = jax.jit(some)(jnp.int32(2))
    assert int(last) == 3
    (_, same_key), each = loops.scan_some(body, (jnp.int32(1), jax.random.key(0)), 2, None)
    assert jnp.array_equal(jax.random.key_data(key), jax.random.key_data(same_key))
    for name, leaf in found.items():
        assert leaf[:2].tolist() == each[name].tolist() and not leaf[2].any()


def test_steps_that_are_written_out_emit_what_a_loop_emits():
    """Unless they are too long: then they are partly unrolled."""
    work, data = fcojax.local_steps(7, 2), fcojax.from_clients(federations.clients())

    def outputs(limit):
        def one(row):
            local = local_handle(data, work, jax.random.key(0), jnp.int32(0), row, row)
            step = lambda carry, batch: carry + jnp.sum(batch.examples["x"])  # noqa: E731
            return local.scan(step, jnp.zeros(()), emit=lambda carry, batch: (carry, batch.step))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                rules, "_ACCELERATOR", rules._ACCELERATOR._replace(unrolled_equations=limit)
            )
            with rules.pretend("cuda"):
                return jax.jit(lambda: jax.vmap(one)(jnp.arange(5, dtype=jnp.int32)))()

    expected = outputs(0)
    for limit in (50, 10_000):
        chex.assert_trees_all_close(outputs(limit), expected, rtol=1e-12)
    assert expected[1][1].tolist() == [list(range(7))] * 5


def test_draws_made_before_the_loop_are_those_of_the_rounds():
    fed_avg, data = fcojax.algorithms.fed_avg(federations.loss), federations.clients()
    plan = fcojax.Plan(fcojax.local_steps(3, 2), fcojax.uniform_cohort(cohort_size=2))
    given = fed_avg, fed_avg.hparams_type(), federations.start(), fcojax.from_clients(data)
    run = functools.partial(fcojax.run, *given, jax.random.key(1), plan, num_rounds=6, eval_every=3)
    expected, _ = run()
    with rules.pretend("cuda"):
        chex.assert_trees_all_close(run()[0], expected, rtol=1e-12)


@pytest.mark.parametrize(("times", "written_out"), [(2, {4, 1}), (40, {1})])
def test_steps_with_a_long_loop_over_time_stay_a_loop(times, written_out):
    """The program does not grow with the steps, nor with the lengths of the sequences."""
    text = jnp.ones((12, times), jnp.int32)
    data = fcojax.from_rows({"x": text, "y": text}, [4] * 3)
    tokens = jax.ShapeDtypeStruct((1, times), jnp.int32)
    build = networks.char_gru(num_tokens=5, num_embedding=2, num_units=3)
    functions = networks.functions_of(build, tokens, (1, times, 5))
    loss = networks.loss_of(functions, lambda z, rows: jnp.mean(z**2, (1, 2)))
    algorithm, start = fcojax.algorithms.fed_avg(loss), functions.init(jax.random.key(0))
    hparams, plan = algorithm.hparams_type(), fcojax.Plan(fcojax.local_steps(9, 2))

    def run(data):
        return fcojax.run(algorithm, hparams, start, data, jax.random.key(0), plan, num_rounds=3)

    with rules.pretend("cuda"):
        found = list(jaxprs.equations(jax.make_jaxpr(run)(data).jaxpr))
    scans = [each.params for each in found if each.primitive.name == "scan"]
    assert {each["unroll"] for each in scans if each["length"] in (9, times)} == written_out
    assert sum(each["length"] == times for each in scans) == 2  # the forward and the reverse pass


@pytest.mark.parametrize(
    ("device", "convolutions", "products"), [("cpu", 0, 3), ("cuda", 0, 3), ("tpu", 3, 0)]
)
@pytest.mark.parametrize(
    ("precision", "found_as"),
    [("highest", "HIGHEST"), ("tensorfloat32", "HIGH"), ("bfloat16", "DEFAULT")]
    + [("default", "DEFAULT"), ("BF16_BF16_F32", "BF16_BF16_F32")],
)
def test_convolutions_of_clients_are_products_at_the_precision_that_is_set(
    device, convolutions, products, precision, found_as
):
    def loss(kernel, x):
        order = jax.lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=order)
        return jnp.sum(y**3)

    slopes = jax.vmap(jax.grad(jaxprs.fast_inside_loops(loss), (0, 1)))
    kernels, images = jnp.ones((2, 3, 3, 1, 4)), jnp.ones((2, 5, 6, 6, 1))
    with rules.pretend(device), jax.default_matmul_precision(precision):
        program = jax.make_jaxpr(slopes)(kernels, images).jaxpr
    found = list(jaxprs.equations(program))
    assert sum(each.primitive.name == "conv_general_dilated" for each in found) == convolutions
    precise = [each.params["precision"] for each in found if each.primitive.name == "dot_general"]
    assert len(precise) == products
    assert all(set(re.findall(r"[A-Z][A-Z0-9_]+", str(each))) == {found_as} for each in precise)
