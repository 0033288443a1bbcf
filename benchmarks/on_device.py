"""The sections of ``benchmarks.accelerator``; each runs in its own process.

A section is a generator of rows. A row without a number has the reason in ``failed``.
"""

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks import by_hand, cifar10, plain_jax
from benchmarks.cases import attempt, timed
from benchmarks.cifar10_settings import SETTINGS
from benchmarks.cifar10_settings import drawn as images
from benchmarks.networks import few
from benchmarks.networks import on_device as rounds_of_network
from benchmarks.networks import ours as of_network
from benchmarks.settings import drawn, grid_of, losses, plan, setting
from benchmarks.sweep import rates as grid_of_rates
from benchmarks.workloads import NETWORKS, SCALES, WORKLOADS, Workload, draw, needs, start
from fcojax import transforms

# The last one is an algorithm for products and not a precision; some backends lack it.
PRECISIONS = ("highest", "high", "default", "BF16_BF16_F32")


# A run on a CPU may take about a second or two, so that all sections fit in ten minutes.
_OPERATIONS_ON_A_CPU = 1e10


def in_few_rounds(workload: Workload, num_points: int = 1) -> Workload:
    """Return the workload with a second or two of rounds on a CPU, but at least five rounds."""
    if jax.default_backend() != "cpu":
        return workload
    affordable = int(_OPERATIONS_ON_A_CPU / (num_points * needs(workload)[0]))
    return workload._replace(num_rounds=min(workload.num_rounds, max(5, affordable)))


def sized(name: str, quick: bool) -> Workload:
    """Return the workload, or a tiny version of it."""
    workload = WORKLOADS[name]
    if not quick:
        return in_few_rounds(workload)
    least = {"num_clients": 6, "num_examples": 20, "dim": 16, "num_classes": 3, "cohort_size": 3}
    least |= {"num_steps": 2, "num_rounds": 2}
    fields = workload._asdict()
    return workload._replace(
        **{k: min(fields[k], most) for k, most in least.items() if fields[k] is not None}
    )


class Setting:
    """A workload on the device, for the library and for plain JAX."""

    def __init__(self, workload: Workload, algorithm: str = "fed_dual_avg"):
        self.workload, self.algorithm = workload, algorithm
        self.x, self.y = draw(workload)
        sizes = [workload.num_examples] * workload.num_clients
        self.data = fcojax.from_rows({"x": self.x, "y": self.y}, sizes).to_device()
        self.params = jax.tree.map(jnp.asarray, start(workload))
        self.loss = losses(workload.model)
        penalty = transforms.on_subtree(transforms.l1(), transforms.named("kernel"))
        factory = fcojax.algorithms.fed_dual_avg
        self.ours = factory(self.loss, transforms.euclidean(penalty))
        self.plan = fcojax.Plan(*plan(workload))
        self.hparams = factory.Hparams(
            client_lr=workload.client_lr, penalty_scale=workload.penalty_scale
        )

    def run(self, key):
        """Run the library, and return the model."""
        num = self.workload.num_rounds
        given = self.ours, self.hparams, self.params, self.data, key, self.plan
        return fcojax.run(*given, num_rounds=num, eval_every=num)[0]

    def sweep(self, pairs, key):
        """Return a function that runs the sweep over pairs of client and server rate."""
        num, grid = self.workload.num_rounds, grid_of(self.hparams, np.asarray(pairs, np.float32))

        @jax.jit
        def whole(grid, data, keys):
            return fcojax.sweep(
                self.ours, grid, self.params, data, keys, self.plan, num_rounds=num, eval_every=num
            )[0]

        return lambda: whole(grid, self.data, key[None])

    def by_hand(self):
        """Return ``(client_lr, server_lr) -> model`` in plain JAX, on our cohorts and batches."""
        workload = self.workload
        shape = workload.num_clients, workload.num_examples
        data = {
            name: leaf.reshape(*shape, *leaf.shape[1:]) for name, leaf in self.data.examples.items()
        }
        members, indices = map(jnp.asarray, drawn(workload, 0))
        if workload.batch_size is None:
            indices = None

        def run(client_lr, server_lr):
            rates = {"client_lr": client_lr, "server_lr": server_lr}
            rates["penalty_scale"] = jnp.float32(workload.penalty_scale)
            given = rates, self.params, data, members, indices
            return plain_jax.run(self.algorithm, self.loss, workload.num_steps, *given)

        return run

    def judge(self, params) -> float:
        """Return F + psi, computed in numpy so that the precision of the device has no effect."""
        params = jax.tree.map(np.asarray, params)
        return by_hand.objective(self.workload, params, self.x, self.y, penalised=True)

    def both(self) -> dict:
        """Return milliseconds per round and the objective of both sides."""
        rounds = self.workload.num_rounds
        ours, first, model = timed(self.run, jax.random.key(0))
        operations, read = needs(self.workload)
        row = {"ms": ours / rounds, "first_run_s": first, "objective": self.judge(model)}
        row |= {"operations": operations, "bytes": read}
        lrs = jnp.float32(self.workload.client_lr), jnp.float32(self.workload.server_lr)
        theirs, _, model = timed(self.by_hand(), *lrs)
        return row | {"by_hand_ms": theirs / rounds, "by_hand_objective": self.judge(model)}


def peaks(quick: bool) -> Iterator[dict]:
    """Measure the peaks of the device: copying, and products at every precision."""
    on_cpu = jax.default_backend() == "cpu"
    side = 256 if quick else 2048 if on_cpu else 8192
    count = (1 << 20) if quick else (1 << 26) if on_cpu else (1 << 30)
    devices = jax.devices()
    yield {
        "case": "device",
        "device": devices[0].device_kind,
        "number": len(devices),
        "backend": jax.default_backend(),
        "jax": jax.__version__,
    }

    def copying():
        # In a loop that writes in place: on a CPU new pages cost more than the copy itself.
        times = 10
        program = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda _, x: x + 1, x).sum())
        milliseconds, _, _ = timed(program, jnp.ones(count, jnp.float32))
        return {"gbytes": 8e-6 * times * count / milliseconds}

    yield attempt("read and write", copying)
    square = jax.random.normal(jax.random.key(0), (side, side), jnp.float32)
    for precision in (*PRECISIONS, "bfloat16 arrays"):

        def multiplying(precision=precision):
            given = square
            if precision == "bfloat16 arrays":
                given, precision = square.astype(jnp.bfloat16), "default"
            with jax.default_matmul_precision(precision):
                milliseconds, _, _ = timed(jax.jit(lambda a: a @ a), given)
            return {"gflops": 2e-6 * side**3 / milliseconds}

        yield attempt(f"products, {precision}", multiplying)


def rounds_of(name: str) -> Callable[[bool], Iterator[dict]]:
    """Return the section of one workload."""

    def section(quick):
        yield attempt(name, lambda: Setting(sized(name, quick)).both())

    return section


def scaling_of(name: str) -> Callable[[bool], Iterator[dict]]:
    """Return the section of a workload with several sizes."""

    def section(quick):
        field, values = SCALES[name]
        for value in (2, 3) if quick else values:
            workload = sized(name, quick)._replace(**{field: value})
            if not quick:  # the cost of a call is shared by its rounds
                workload = workload._replace(num_rounds=100)
            workload = workload._replace(cohort_size=2) if quick else in_few_rounds(workload)
            case = f"{name}, {field} = {value:,}"
            yield attempt(case, lambda workload=workload: Setting(workload).both())

    return section


def sweep(quick: bool) -> Iterator[dict]:
    """Yield W4 with 1 to 10,000 points; the hand-written side uses ``vmap``, up to a hundred."""
    workload = sized("W1", quick)
    workload = workload._replace(num_rounds=min(workload.num_rounds, 100))
    operations, read = needs(workload)
    for num in (1, 2) if quick else (1, 5, 10, 20, 100):
        pairs = grid_of_rates(num)
        setting = Setting(in_few_rounds(workload, len(pairs)))

        def points(pairs=pairs, setting=setting):
            rounds = setting.workload.num_rounds
            ours, first, models = timed(setting.sweep(pairs, jax.random.key(0)))
            one = jax.tree.map(lambda leaf: leaf[0, 0], models)
            row = {"ms": ours / rounds, "first_run_s": first, "objective": setting.judge(one)}
            row |= {"operations": operations * len(pairs), "bytes": read}
            if len(pairs) > 100:
                return row
            lrs = [jnp.asarray(column, jnp.float32) for column in np.asarray(pairs).T]
            theirs, _, models = timed(jax.jit(jax.vmap(setting.by_hand())), *lrs)
            one = jax.tree.map(lambda leaf: leaf[0], models)
            row |= {"by_hand_objective": setting.judge(one)}
            return row | {"by_hand_ms": theirs / rounds}

        yield attempt(f"W4, {num * num:,} points", points)


def by_precision(quick: bool) -> Iterator[dict]:
    """Yield objectives and times of W1 to W4 at each precision of products."""
    for name in ("W1", "W2", "W3", "W4"):
        workload = sized("W1" if name == "W4" else name, quick)
        setting, at_highest = Setting(workload), None
        pairs = grid_of_rates(2 if quick else 5)
        for precision in PRECISIONS:

            def end(name=name, setting=setting, pairs=pairs, precision=precision):
                with jax.default_matmul_precision(precision):
                    if name == "W4":
                        ms, first, models = timed(setting.sweep(pairs, jax.random.key(0)))
                        ends = [
                            setting.judge(jax.tree.map(lambda leaf, i=i: leaf[i, 0], models))
                            for i in range(0, len(pairs), 4)
                        ]
                    else:
                        ms, first, model = timed(setting.run, jax.random.key(0))
                        ends = [setting.judge(model)]
                ms /= setting.workload.num_rounds
                return {"ms": ms, "first_run_s": first, "objective": min(ends)}

            row = attempt(f"{name}, {precision}", end)
            if precision == "highest":
                at_highest = row.get("objective")
            elif at_highest and "objective" in row:
                row["off_by"] = row["objective"] / at_highest - 1
            yield row


def calls(quick: bool) -> Iterator[dict]:
    """Yield the time of one call of ``run`` with one round of W1."""
    one = Setting(sized("W1", quick)._replace(num_rounds=1))

    def call():
        ms, first, _ = timed(one.run, jax.random.key(0))
        return {"ms": ms, "first_run_s": first}

    yield attempt("one call of run, one round of W1", call)


def main_job(quick: bool) -> Iterator[dict]:
    """Yield the time of the launcher's main job, without and with what an earlier run left."""
    with tempfile.TemporaryDirectory() as folder:
        for case in ("cold", "warm"):
            command = [sys.executable, "-m", "fcojax", "run", "lasso", f"--workdir={folder}/{case}"]

            def whole(command=command):
                began = time.perf_counter()
                variables = {"XDG_CACHE_HOME": folder, "JAX_COMPILATION_CACHE_DIR": ""}
                subprocess.run(
                    command + ["--quick"] * quick,
                    check=True,
                    env=os.environ | variables,
                    stdout=subprocess.DEVNULL,
                )
                return {"seconds": time.perf_counter() - began}

            yield attempt(f"fcojax run lasso, {case}", whole)


_DIGESTS = """
import hashlib, sys
import jax, numpy as np
from benchmarks.networks import few
from benchmarks.on_device import fed_avg, sized
from benchmarks.workloads import NETWORKS, WORKLOADS
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_enable_compilation_cache", False)
name, quick = sys.argv[1], sys.argv[2] == "True"
workload = few(WORKLOADS[name], quick) if name == "W7" else sized(name, quick)
model = fed_avg(workload._replace(num_rounds=min(workload.num_rounds, 20)))()
leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model)]
print(hashlib.sha256(b"".join(leaves)).hexdigest()[:16])
"""


def bits(quick: bool) -> Iterator[dict]:
    """Yield whether two processes without a cache end at the same bits."""
    for name in ("W1", "W2", "W3", "W7"):

        def two(name=name):
            command = [sys.executable, "-c", _DIGESTS, name, str(quick)]
            run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
            return {"same_bits": run(command).stdout == run(command).stdout}

        yield attempt(f"{name}, two processes", two)


def fed_avg(workload: Workload | cifar10.Setting) -> Callable[[], dict]:
    """Return a function that runs FedAvg on a workload or a setting of CIFAR-10."""
    num = workload.num_rounds
    if isinstance(workload, cifar10.Setting):
        drawn_images = images(workload.num_clients * workload.num_rows, 0)
        problem = cifar10.problem_of(drawn_images, images(10, 1), workload)
        given = cifar10.arguments_of(problem, workload)
        return lambda: fcojax.run(*given, num_rounds=num, eval_every=num)[0]
    x, y = draw(workload)
    if workload.model in NETWORKS:
        data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
        return functools.partial(of_network(workload, "fed_avg", data), num)
    *given, data = setting(workload, "fed_avg", x, y)
    given += [data.to_device(), jax.random.key(0), fcojax.Plan(*plan(workload))]
    return lambda: fcojax.run(*given, num_rounds=num, eval_every=num)[0]


# Seconds of other people, on their devices and data: Dimitriadis et al., "FLUTE", 2022; Granqvist
# et al., "pfl-research", 2024, on one A100; BlazeFL, on four RTX 6000. Rows here have the same
# shapes, and all clients equally many.
PUBLISHED = {
    "FEMNIST CNN, 1,500 rounds": (
        WORKLOADS["W7"]._replace(num_examples=200, num_steps=10),
        1500,
        "FLUTE 502 s, FedML 20,989 s",
    ),
    "MNIST logistic regression, 100 rounds": (
        WORKLOADS["W3"]._replace(
            num_clients=1000, num_examples=60, num_classes=10, num_steps=6, batch_size=10
        ),
        100,
        "FLUTE 95 s",
    ),
    "CIFAR-10 CNN, 1,500 rounds": (SETTINGS["pfl"], 1500, "pfl-research: see its paper"),
    "CIFAR-10 CNN, 5 rounds of all": (SETTINGS["blazefl"], 5, "BlazeFL 25 s, Flower 65 s"),
}


def published(quick: bool) -> Iterator[dict]:
    """Yield seconds of runs that others have published, from a few rounds and the first call."""
    for case, (workload, rounds, theirs) in PUBLISHED.items():

        def seconds(workload=workload, rounds=rounds):
            workload = few(workload._replace(num_rounds=min(rounds, 10)), quick)
            ms, first, _ = timed(fed_avg(workload))
            ms /= workload.num_rounds
            return {"ms": ms, "first_run_s": first, "seconds": first + ms * rounds / 1e3}

        yield attempt(case, seconds) | ({} if quick else {"theirs": theirs})


SECTIONS: dict[str, Callable[[bool], Iterator[dict]]] = {
    "peaks": peaks,
    "W1": rounds_of("W1"),
    "W2": rounds_of("W2"),
    "W3": rounds_of("W3"),
    "sweep": sweep,
    "W5": scaling_of("W5"),
    "W6": scaling_of("W6"),
    "W7": rounds_of_network("W7"),
    "calls": calls,
    "bits": bits,
    "main job": main_job,
    "published": published,
    "W8": rounds_of_network("W8"),
    "precision": by_precision,
}
