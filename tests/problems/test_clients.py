import functools
import itertools
import tracemalloc

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import datasets
from fcojax.problems import memory
from fcojax.problems.building import from_clients, from_rows
from fcojax.problems.client_data import size_bounds
from fcojax.problems.problem import population_loss
from fcojax.xla.jaxprs import bytes_of_results


def rows(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((n, 3)), "y": rng.standard_normal(n)} for n in sizes]


def squared(w, examples):
    return (examples["x"] @ w - examples["y"]) ** 2


def test_clients_keep_their_rows_in_order():
    clients = rows(3, 1, 4)
    data = from_clients(clients)
    assert (data.num_clients, data.min_size, data.max_size) == (3, 1, 4)
    for m, client in enumerate(clients):
        mine = slice(*data.offsets[m : m + 2].tolist())
        assert np.array_equal(data.examples["x"][mine], client["x"])


@pytest.mark.parametrize("ids", [["w10", "w2", "w1"], [10, 2, 1], [10.0, 2.0, 1.0]])
def test_clients_come_in_the_order_of_their_ids(ids):
    """Clients keep their rows and weights, for any order of the arguments."""
    clients, weights = rows(3, 1, 4), [5.0, 6.0, 7.0]
    order = sorted(range(3), key=lambda m: ids[m])
    data = from_clients(clients, weights, ids=ids)
    assert data.ids.tolist() == [ids[m] for m in order]
    assert data.weights.tolist() == [weights[m] for m in order]
    assert data.sizes.tolist() == [len(clients[m]["y"]) for m in order]
    assert np.array_equal(data.examples["x"], np.concatenate([clients[m]["x"] for m in order]))


def test_ids_may_be_an_object_array_of_strings():
    rows, names = {"x": np.arange(3.0)}, np.array(["b", "a", "b"], object)
    data = datasets.by_client(datasets.Pooled(rows, names))
    assert data.ids.dtype.kind == "U" and data.ids.tolist() == ["a", "b"]
    for hole in (None, np.nan):
        holes = np.array(["b", hole, "b"], object)
        with pytest.raises(ValueError, match="the client column has a missing id"):
            datasets.by_client(datasets.Pooled(rows, holes))
    with pytest.raises(ValueError, match="whole numbers or strings"):
        fcojax.from_rows(rows, [1, 2], ids=np.array([(), "b"], object))


def test_ids_stay_on_the_host_and_do_not_retrace():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def weight(data):
        return data.weights.sum(), data

    # [7, 5] changes the order of the sizes; new names alone do not trace again.
    for ids in (None, ["a", "b"], [7, 5]):
        data = from_rows({"x": np.ones((3, 1))}, [2, 1], ids=ids)
        assert not any(leaf.dtype.kind == "U" for leaf in map(np.asarray, jax.tree.leaves(data)))
        passed = weight(data)[1]
        assert passed.ids is None and passed.num_clients == 2


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(None, [1, 1, 1]), (0, [1, 1, 1]), (0.5, [3, 1, 2]), (1, [9, 1, 4]), (-1, [1 / 9, 1, 1 / 4])],
)
def test_weights_are_powers_of_the_size(weights, expected):
    data = from_clients(rows(9, 1, 4), weights)
    np.testing.assert_allclose(data.weights, expected, rtol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_size_bounds_are_the_best_there_are(seed):
    """All choices of that many bounds are tried; fewer bounds would pad more than allowed."""
    rng = np.random.default_rng(seed)
    sizes = np.floor(rng.uniform(1, 60, 12) ** rng.uniform(0.5, 2)).astype(int) + 1

    def total(bounds):
        return sum(min(b for b in bounds if b >= n) for n in sizes.tolist())

    bounds = size_bounds(sizes, row_bytes=1 << 20)
    assert list(bounds) == sorted(bounds) and bounds[-1] == sizes.max()
    assert total(bounds) <= 1.15 * sizes.sum()
    others = sorted(set(sizes.tolist()) - {sizes.max()})

    def best(count):
        chosen = itertools.combinations(others, count - 1)
        return min(total((*choice, sizes.max())) for choice in chosen)

    assert total(bounds) == best(len(bounds))
    assert len(bounds) == 1 or best(len(bounds) - 1) > 1.15 * sizes.sum()


@pytest.mark.parametrize("rows_at_once", [1, 3, 8, 100])
@pytest.mark.parametrize("weights", [None, "examples", [0.5, 2.0, 0.25]])
def test_population_loss_is_the_weighted_mean_of_client_means(rows_at_once, weights):
    clients = rows(3, 1, 4)
    data = from_clients(clients, weights)
    w = jnp.array([1.0, -2.0, 0.5])
    p = {"examples": [3, 1, 4], "None": np.ones(3)}.get(str(weights), weights)
    means = [np.mean((c["x"] @ np.asarray(w) - c["y"]) ** 2) for c in clients]
    expected = np.average(means, weights=p)
    assert population_loss(squared, w, data, rows_at_once) == pytest.approx(expected, rel=1e-14)


def test_a_loss_with_large_intermediate_arrays_is_evaluated_in_small_blocks():
    """All rows at once would take 512 MB; the result equals that of one block."""

    def wide(w, rows):
        copies = jnp.broadcast_to(rows[:, None, None], (*rows.shape, 250, 256))
        return jnp.mean(jnp.sin(w * copies), axis=(1, 2))

    data = from_clients([np.linspace(0.0, 1.0, 1000)])
    evaluate = functools.partial(population_loss, wide, data=data)
    assert max(bytes_of_results(wide, 1.0, data.examples)) == 1000 * 250 * 256 * 8
    assert max(bytes_of_results(evaluate, 1.0)) <= 1 << 25
    assert evaluate(1.0) == pytest.approx(np.mean(np.sin(np.linspace(0.0, 1.0, 1000))))


def test_derivatives_of_the_population_loss_keep_no_copy_of_the_rows():
    data, w = from_rows({"x": np.ones((4096, 64)), "y": np.ones(4096)}, [4096]), jnp.ones(64)

    def gradient(w, data):
        return jax.grad(lambda w: population_loss(squared, w, data, 256))(w)

    def curvature(w, data):
        return jax.jvp(lambda w: gradient(w, data), (w,), (w,))[1]

    for derivative in (gradient, curvature):
        taken = jax.jit(derivative).lower(w, data).compile().memory_analysis()
        assert taken is not None and taken.temp_size_in_bytes < 0.5 * data.examples["x"].nbytes


@pytest.mark.parametrize("axes", [{"clients": 2}, {"sweep": 2}])
def test_population_loss_and_its_gradient_are_the_same_on_a_mesh(axes):
    clients, w = rows(3, 1, 4), jnp.array([1.0, -2.0, 0.5])
    data = from_clients(clients, "examples")
    spread = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(**axes))
    both = jax.jit(jax.value_and_grad(lambda w, data: population_loss(squared, w, data)))
    expected, found = both(w, data), both(w, spread)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-14)


def addresses(leaf):
    """Return the memory of each device's part."""
    return [shard.data.unsafe_buffer_pointer() for shard in leaf.addressable_shards]


def test_devices_of_one_cpu_share_the_memory_of_the_population():
    data = from_rows({"x": np.ones((64, 16), np.float32), "y": np.ones(64, np.float32)}, [16] * 4)
    whole = {name: leaf.unsafe_buffer_pointer() for name, leaf in data.examples.items()}
    for axis, offset in (("clients", 0.5), ("sweep", 0.0)):
        sharded = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(**{axis: 2}))
        for name, leaf in sharded.examples.items():
            second = whole[name] + int(offset * data.examples[name].nbytes)
            assert addresses(leaf) == [whole[name], second]


def test_a_device_with_fewer_rows_has_a_padded_copy():
    rows = {"x": np.arange(32.0, dtype=np.float32).reshape(8, 4)}
    data = from_rows(rows, [3, 2, 2, 1])
    sharded = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(clients=2))
    first, second = (np.asarray(part.data) for part in sharded.examples["x"].addressable_shards)
    assert addresses(sharded.examples["x"])[0] == data.examples["x"].unsafe_buffer_pointer()
    assert np.array_equal(first, rows["x"][:5])
    assert np.array_equal(second, rows["x"][[5, 6, 7, 7, 7]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_joined_and_converted_in_memory_that_the_device_uses(dtype, order):
    """If the device had its own copy, numpy would not hold the memory."""
    clients = [{"x": np.ones((250, 40), dtype, order=order)} for _ in range(4)]
    tracemalloc.start()
    with jax.enable_x64(False):
        data = jax.block_until_ready(from_clients(clients, ids=[2, 1, 3, 0]))
    by_numpy = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    traces = tracemalloc.take_snapshot().filter_traces([by_numpy]).traces
    tracemalloc.stop()
    num_bytes = data.examples["x"].nbytes
    assert num_bytes == 4 * 1000 * 40
    assert num_bytes <= sum(trace.size for trace in traces) < 1.1 * num_bytes


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8])
def test_a_large_array_is_copied_in_blocks_to_memory_that_the_device_uses(dtype, monkeypatch):
    monkeypatch.setattr(memory, "_LARGE_BYTES", 1 << 10)
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 1 << 9)
    values = np.arange(1001 * 7).astype(dtype)
    rows = memory.aligned((values.size + 1,), values.dtype)[1:].reshape(1001, 7)
    rows[...] = values.reshape(rows.shape)
    copy = memory.copied(rows)
    assert np.array_equal(copy, rows) and not np.may_share_memory(copy, rows)
    assert jax.device_put(copy).unsafe_buffer_pointer() == copy.ctypes.data
    assert memory.copied(copy) is copy
    made, function = [], memory.copied
    monkeypatch.setattr(memory, "copied", lambda leaf: made.append(function(leaf)) or made[-1])
    data = from_rows({"x": rows}, [1000, 1])
    assert data.examples["x"].unsafe_buffer_pointer() == made[0].ctypes.data
    monkeypatch.undo()
    rows[...] = 0
    assert np.array_equal(np.asarray(data.examples["x"]).reshape(-1), values)
    assert memory.copied(rows) is rows  # small enough without the limits above


def test_memory_that_is_not_there_is_a_memory_error():
    with pytest.raises(MemoryError, match="GiB of memory are left"):
        memory.aligned((1 << 47,), np.dtype(np.uint8))


def test_rows_on_the_host_are_placed_on_a_mesh_as_they_are():
    rows = {"x": np.arange(32.0).reshape(8, 4), "y": np.arange(8)}
    on_host = from_rows(rows, [3, 2, 2, 1], on_host=True)
    assert on_host.examples["x"] is rows["x"]
    mesh = fcojax.devices.device_mesh(clients=2)
    found = fcojax.devices.shard_clients(on_host, mesh)
    expected = fcojax.devices.shard_clients(from_rows(rows, [3, 2, 2, 1]), mesh)
    assert jax.tree.map(np.array_equal, found, expected) == jax.tree.map(lambda _: True, expected)
    assert isinstance(on_host.to_device().examples["x"], jax.Array)


def test_means_of_clients_are_those_of_their_rows_also_where_they_are_traced():
    clients = rows(3, 1, 4)
    data, w = from_clients(clients, weights="examples"), np.array([1.0, -2.0, 0.5])
    expected = [np.mean(squared(w, mine)) for mine in clients]
    means = fcojax.problems.client_means
    np.testing.assert_allclose(means(squared(w, data.examples), data), expected, rtol=1e-12)
    total = np.average(means(squared(w, data.examples), data), weights=data.weights)
    assert float(population_loss(squared, w, data)) == pytest.approx(total, rel=1e-12)

    def observe(hparams, model, context):
        positive = data.examples["y"] > 0  # booleans
        return {
            "losses": means(squared(model, data.examples), data),
            "positive": means(positive, data),
        }

    algorithm = fcojax.algorithms.fed_avg(squared)
    given = algorithm, algorithm.hparams_type(client_lr=0.1), jnp.zeros(3), data, jax.random.key(0)
    model, history = fcojax.run(*given, fcojax.local_steps(1), num_rounds=2, observe=observe)
    expected = [np.mean(squared(np.asarray(model), mine)) for mine in clients]
    np.testing.assert_allclose(history["losses"][-1], expected, rtol=1e-12)
    shares = [np.mean(mine["y"] > 0) for mine in clients]
    np.testing.assert_allclose(history["positive"][0], shares, rtol=1e-12)
    with pytest.raises(ValueError, match="one number for each of 8 rows"):
        means(np.ones(3), data)
