"""The number of clients side by side, on the current device and on simulated ones."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms, networks
from fcojax.engine.hparams import as_arrays
from fcojax.engine.placement import chunk_size
from fcojax.engine.placement.chunk_size import device_memory, usable_memory
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled
from fcojax.xla.rules import backend, pretend, rules

NUM_CLIENTS = 64
GIGABYTE = 1 << 30


def equal_clients(num_clients, num_examples, dim):
    x = np.zeros((num_clients * num_examples, dim), np.float32)
    return fcojax.from_rows({"x": x, "y": x[:, 0]}, [num_examples] * num_clients)


def test_a_cpu_keeps_a_chunk_in_its_cache():
    data, work = equal_clients(8, 4, 16), fcojax.local_steps(1)
    assert rules().chunk_bytes == 1 << 20 and rules().sweep_chunk_bytes == 1 << 17
    for each, alone, in_a_sweep in ((1 << 10, 8, 8), (1 << 18, 4, 1), (1 << 21, 1, 1)):
        assert chunk_size.chunk_size(work, data, each, 8) == alone
        assert chunk_size.chunk_size(work, data, each, 8, num_points=5) == in_a_sweep


def test_an_accelerator_takes_all_that_may_fit():
    data, work = equal_clients(100, 2, 3), fcojax.local_steps(1)
    with pretend("cuda", 16 * GIGABYTE):
        assert (backend(), device_memory()) == ("cuda", 16 * GIGABYTE)
        assert usable_memory() == 8 * GIGABYTE
        assert chunk_size.chunk_size(work, data, 1 << 17, 100) == 100
        # A program that may not fit and cannot be compiled counts as 256 times its arguments.
        assert chunk_size.chunk_size(work, data, 1 << 20, 100) == 32
        assert chunk_size.chunk_size(work, data, 1 << 34, 100) == 1
    assert backend() == "cpu" and device_memory() != 16 * GIGABYTE


class OfProblem:
    """A round on a problem, with memory for only a part of its clients."""

    def __init__(self, problem, algorithm, work):
        params = jax.eval_shape(problem.init, jax.random.key(0))
        hparams = as_arrays(algorithm.hparams_type(client_lr=0.1))
        self.given, self.work = (algorithm, hparams, params, problem.train), work

    def memory_for(self, num_clients):
        """The least memory, to a fifth, with which so many clients run together."""
        memory = 1 << 18
        while True:
            with pretend("cuda", memory):
                if self.sized().client_chunk_size >= num_clients:
                    return memory
            memory += memory // 5

    def sized(self):
        return fcojax.devices.sized(*self.given, fcojax.Plan(self.work))

    def peak(self, plan):
        algorithm, hparams, params, data = self.given
        key = jax.random.key(0)
        state = jax.eval_shape(
            lambda at: fcojax.start(algorithm, hparams, at, data, key, plan), params
        )
        lowered = advance_compiled.lower(Program(algorithm, plan), hparams, data, state, None)
        report = lowered.compile().memory_analysis()
        # A donated argument is counted both as argument and as output; `alias` is that overlap.
        whole = report.argument_size_in_bytes + report.output_size_in_bytes
        return whole + report.temp_size_in_bytes - report.alias_size_in_bytes


def images():
    rng = np.random.default_rng(0)
    x = rng.random((NUM_CLIENTS * 8, 64), dtype=np.float32)
    return fcojax.from_rows({"x": x, "y": np.zeros(len(x), np.int32)}, [8] * NUM_CLIENTS)


def test_the_chosen_sizes_fit_into_memory():
    """The compiler reports the memory, if the rule allows at least eight clients together."""
    problem = networks.network(networks.two_layer(64, 32, 3), images(), num_classes=3)
    work = fcojax.local_steps(2, 4)
    of_problem = OfProblem(problem, algorithms.fed_avg(problem.loss), work)
    with pretend("cuda", of_problem.memory_for(8)):
        plan = of_problem.sized()
        assert plan.client_chunk_size >= 8
        assert of_problem.peak(plan) <= usable_memory()


def test_sizes_that_a_plan_names_are_kept():
    data = equal_clients(8, 4, 16)
    algorithm = algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
    given = algorithm, algorithm.hparams_type(), jnp.zeros(16), data
    plan = fcojax.Plan(fcojax.local_steps(1), client_chunk_size=3, point_chunk_size=2)
    assert fcojax.devices.sized(*given, plan, num_points=5) == plan
    sized = fcojax.devices.sized(*given, plan.work, num_points=5)
    assert (sized.client_chunk_size, sized.point_chunk_size) == (8, 5)
