"""How many clients work side by side, on the device that is there and on pretended ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, problems
from fcojax.device import backend, pretend, rules
from fcojax.engine import layout
from fcojax.engine.hparams import as_arrays
from fcojax.engine.memory import device_memory, needed_bytes, room, shapes_of
from fcojax.engine.stepper import advance_kept, with_sizes
from fcojax.problems import networks
from fcojax.transforms import stiefel

NUM_CLIENTS = 64
GIGABYTE = 1 << 30


def equal_clients(num_clients, num_examples, dim):
    x = np.zeros((num_clients * num_examples, dim), np.float32)
    return fcojax.from_rows({"x": x, "y": x[:, 0]}, [num_examples] * num_clients)


def ragged_clients(num_clients):
    sizes = np.geomspace(10, 400, num_clients).astype(int)
    return fcojax.from_rows({"x": np.zeros((sizes.sum(), 3), np.float32)}, sizes)


def test_a_cpu_keeps_a_chunk_in_its_cache():
    data, work = equal_clients(8, 4, 16), fcojax.local_steps(1)
    assert rules().chunk_bytes == 1 << 20 and rules().sweep_chunk_bytes == 1 << 17
    for each, alone, in_a_sweep in ((1 << 10, 8, 8), (1 << 18, 4, 1), (1 << 21, 1, 1)):
        assert layout.chunk_size(work, data, each, 8) == alone
        assert layout.chunk_size(work, data, each, 8, num_points=5) == in_a_sweep


def test_an_accelerator_takes_all_that_may_fit():
    data, work = equal_clients(100, 2, 3), fcojax.local_steps(1)
    with pretend("cuda", 16 * GIGABYTE):
        assert (backend(), device_memory(), room()) == ("cuda", 16 * GIGABYTE, 8 * GIGABYTE)
        assert layout.chunk_size(work, data, 1 << 17, 100) == 100
        # What may not fit and cannot be compiled is taken to need 256 times what it states.
        assert layout.chunk_size(work, data, 1 << 20, 100) == 32
        assert layout.chunk_size(work, data, 1 << 34, 100) == 1
    assert backend() == "cpu" and device_memory() != 16 * GIGABYTE


def test_writers_of_different_sizes_are_few_groups_on_an_accelerator():
    data = ragged_clients(36)
    for work in (fcojax.local_steps(2), fcojax.local_epochs(1, 10)):
        assert layout.chunk_size(work, data, 1 << 10, 36) == 2
        with pretend("tpu", GIGABYTE):
            assert layout.chunk_size(work, data, 1 << 10, 36) == 9


def test_accelerators_share_clients_when_a_round_reads_enough():
    assert layout.pays_to_share(1 << 30, 100, 10, 2) is None
    with pretend("cuda"):
        assert layout.pays_to_share(1 << 20, 10, 50, 4)
        assert not layout.pays_to_share(1 << 10, 10, 50, 4)


def test_several_accelerators_share_large_clients_that_work_side_by_side():
    """On a CPU they are spread where they work one by one; here they are not, and are spread."""
    data = equal_clients(8, 64, 1024)  # 256 KiB a client and step
    algorithm = algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
    given = algorithm, algorithms.fed_avg.Hparams(0.1), jnp.zeros(1024, jnp.float32)
    many, few = fcojax.local_steps(200), fcojax.local_steps(2)
    assert fcojax.spread(*given, data, many).mesh is None
    with pretend("cuda", GIGABYTE):
        assert fcojax.spread(*given, data, many).num_shards == 2
        assert fcojax.spread(*given, data, few).mesh is None


class Program:
    """A round on a problem, with room for a part of its clients."""

    def __init__(self, problem, algorithm, work, num_points=1):
        self.data, self.algorithm, self.num_points = problem.train, algorithm, num_points
        self.plan = fcojax.Plan(work)
        self.params = shapes_of(problem.init(jax.random.key(0)))

    @functools.cached_property
    def arguments(self):
        hparams = as_arrays(self.algorithm.hparams_type(client_lr=0.1))
        keys = jax.random.key(0)
        if self.num_points > 1:
            hparams = jax.tree.map(lambda leaf: jnp.repeat(leaf, self.num_points), hparams)
            keys = keys[None]
        state = jax.eval_shape(
            lambda params, keys: fcojax.start(
                self.algorithm, hparams, params, self.data, keys, self.plan
            ),
            self.params,
            keys,
        )
        return hparams, shapes_of(self.data), state

    def chosen(self):
        return with_sizes(self.algorithm, self.plan, *self.arguments).client_chunk_size

    def peak(self, chunk):
        plan = self.plan._replace(client_chunk_size=chunk)
        lowered = advance_kept.lower(self.algorithm, plan, None, 1, 1, *self.arguments, None)
        return needed_bytes(lowered.compile())


def images():
    rng = np.random.default_rng(0)
    x = rng.random((NUM_CLIENTS * 8, 64), dtype=np.float32)
    return fcojax.from_rows(
        {"x": x, "y": np.zeros(len(x), np.int32)}, [8] * NUM_CLIENTS
    )  # fmt: skip


def on_network(build):
    problem = networks.network(build, images(), num_classes=3)
    return Program(problem, algorithms.fed_avg(problem.loss), fcojax.local_steps(2, 4))


def on_least_squares(work, num_points=1):
    problem = problems.synthetic_least_squares(num_clients=NUM_CLIENTS, num_examples=16, dim=256)
    return Program(problem, algorithms.fed_avg(problem.loss), work, num_points)


def on_softmax():
    problem = problems.softmax(images(), num_classes=30)
    return Program(problem, algorithms.fed_dyn(problem.loss), fcojax.local_epochs(1, 4))


def on_pca():
    problem = problems.synthetic_pca(
        num_clients=NUM_CLIENTS, num_examples=8, dim=100, num_components=4
    )
    return Program(problem, algorithms.fed_manifold(problem.loss, stiefel()), fcojax.local_steps(2))


# What each is, and the room for one program, in kilobytes.
PROGRAMS = {
    "dense network": (lambda: on_network(networks.two_layer(64, 32, 3)), 1000),
    "convolutional network": (
        lambda: on_network(networks.conv_net((8, 8, 1), (4, 8), 16, 3)),
        2000,
    ),
    "full batches": (lambda: on_least_squares(fcojax.local_steps(2)), 1700),
    "a sweep": (lambda: on_least_squares(fcojax.local_steps(2, 4), 20), 2500),
    "client states": (on_softmax, 2600),
    "a manifold": (on_pca, 900),
}
EAGER = ("dense network",)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name if name in EAGER else pytest.param(name, marks=pytest.mark.long) for name in PROGRAMS],
)
def test_the_chosen_chunk_fills_the_room_and_no_more(name):
    """Told by the compiler: at most the room for a program, and at least half of it."""
    make, kilobytes = PROGRAMS[name]
    with pretend("cuda", 2 * kilobytes << 10):
        program = make()
        chunk = program.chosen()
        assert 1 < chunk < NUM_CLIENTS
        assert kilobytes << 9 <= program.peak(chunk) <= kilobytes << 10, chunk
