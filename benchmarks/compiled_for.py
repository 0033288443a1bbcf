"""The kernels of programs compiled for an accelerator, without the device.

    python -m benchmarks.compiled_for cuda [--only="W1;W2"] [--out=FILE]
    python -m benchmarks.compiled_for tpu

XLA compiles for H200s or a TPU v5e from a description of them. No device and no driver is needed,
only the compiler, in an environment with the project's dependencies and

    pip install --no-deps jax-cuda13-plugin==X jax-cuda13-pjrt==X   # cuda; X is JAX's version
    pip install libtpu                                              # tpu

Each line has the seconds to compile, kernels per round with loops multiplied out, how many of them
are in graphs, what the host launches, megabytes read and written, temporary megabytes, library
calls, conditions for which the host waits, bytes sent between devices, and a modelled time. With
--graphs=+WHILE loops are in graphs too. The exit status is 1 if a program could not be compiled.

XLA records consecutive kernels in a CUDA graph, which the host launches once. The model adds, in
microseconds and without overlap, 2.5 for each launch of the host and 1 for each kernel of a graph,
bytes over the bandwidth, and products over the peak.

The file has three parts: the programs, the launches in their compiled text, and the table.
"""

import argparse
import collections
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Without these variables libtpu queries the machine for a TPU.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
# libtpu's lock allows one process per device, but no device is used here.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

import fcojax
from benchmarks import networks
from benchmarks.cases import attempt, table
from benchmarks.settings import plan
from benchmarks.workloads import WORKLOADS, Workload
from fcojax import transforms
from fcojax.extend import pretend
from fcojax.transforms import euclidean, grassmann, l1, nuclear, stiefel, trend_filter

# The programs, with shapes in place of data. Workloads have the sizes of ``benchmarks.workloads``;
# models are plain arrays, as in a user's own loss.

_ROUNDS = 100


class Compilable(NamedTuple):
    """A program, and the arguments of its compilation.

    Attributes:
      function: the function that is compiled.
      arguments: the shapes of its arguments.
      rounds: the number of rounds that it runs.
      num_devices: devices among which the clients are shared.
      x64: whether it is traced in double precision.
    """

    function: Callable
    arguments: tuple
    rounds: int = _ROUNDS
    num_devices: int = 1
    x64: bool = False


def _shape(*sides: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sides, dtype)


def population(num_clients: int, num_examples: int, **fields) -> fcojax.ClientData:
    """Return clients of equal sizes whose examples are shapes: ``x=(dim,)``, or with a dtype."""
    rows = num_clients * num_examples
    data = fcojax.from_rows(np.zeros((rows, 1), np.int8), [num_examples] * num_clients)
    examples = {}
    for name, field in fields.items():
        sides, dtype = field if isinstance(field, list) else (field, jnp.float32)
        examples[name] = _shape(rows, *sides, dtype=dtype)
    return dataclasses.replace(data, examples=examples)


def least_squares(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def logistic(w, rows):
    score = rows["x"] @ w
    return jnp.logaddexp(0.0, score) - rows["y"] * score


def softmax(params, rows):
    score = rows["x"] @ params["w"] + params["b"]
    picked = jnp.take_along_axis(score, rows["y"][:, None], 1)[:, 0]
    return jax.nn.logsumexp(score, -1) - picked


def inner_products(w, rows):
    """Least squares of inner products with a matrix ``w``."""
    return 0.5 * (jnp.einsum("bij,ij->b", rows["x"], w) - rows["y"]) ** 2


def made(name: str, loss: Callable, penalty=None):
    """Return an algorithm by name, with its geometry from a penalty."""
    factory = getattr(fcojax.algorithms, name)
    penalty = penalty or l1()
    known = {"penalty": penalty, "mirror": euclidean(penalty), "manifold": transforms.sphere()}
    return factory(loss, *(known[kind] for kind in factory.geometry))


def linear(workload: Workload):
    """Return the start point, the loss and the population of a linear workload."""
    counts, dim = (workload.num_clients, workload.num_examples), workload.dim
    if workload.model == "softmax":
        classes = workload.num_classes or 0
        start = {"w": _shape(dim, classes), "b": _shape(classes)}
        return start, softmax, population(*counts, x=(dim,), y=[(), jnp.int32])
    data = population(*counts, x=(dim,), y=())
    if workload.model == "least_squares":
        return _shape(dim), least_squares, data
    # As `problems.logistic` makes them for so many features.
    products: Any = _shape(math.prod(counts), workload.num_examples)
    return _shape(dim), fcojax.problems.LinearLoss(logistic), data.with_products(products)


def rounds_of(algorithm, start, data, how, rounds: int = _ROUNDS) -> Compilable:
    """Return ``run`` with this algorithm, evaluated once, after the last round."""
    hparams = jax.tree.map(jnp.float32, algorithm.hparams_type())

    def run(data, key, hparams, start):
        return fcojax.run(
            algorithm, hparams, start, data, key, how, num_rounds=rounds, eval_every=rounds
        )

    return Compilable(run, (data, jax.random.key(0), hparams, start), rounds)


def of_workload(workload: Workload, algorithm: str) -> Compilable:
    """Return the rounds of a linear workload."""
    start, loss, data = linear(workload)
    return rounds_of(made(algorithm, loss), start, data, fcojax.Plan(*plan(workload)))


def many_clients(cohort_size: int) -> Compilable:
    """Return W6 with a cohort of half of the clients, or of all 10,000."""
    num_clients = min(2 * cohort_size, WORKLOADS["W6"].num_clients)
    workload = WORKLOADS["W6"]._replace(num_clients=num_clients, cohort_size=cohort_size)
    return of_workload(workload, "fed_dual_avg")


def grid_of(num_points: int) -> Compilable:
    """Return W4: the rounds of W1 for a grid of rates."""
    start, loss, data = linear(WORKLOADS["W1"])
    algorithm, how = made("fed_dual_avg", loss), fcojax.Plan(*plan(WORKLOADS["W1"]))
    grid = jax.tree.map(lambda _: _shape(num_points), algorithm.hparams_type())

    def sweep(data, keys, grid, start):
        return fcojax.sweep(
            algorithm, grid, start, data, keys, how, num_rounds=_ROUNDS, eval_every=_ROUNDS
        )

    return Compilable(sweep, (data, jax.random.split(jax.random.key(0), 1), grid, start))


def of_network(name: str, **options) -> Compilable:
    """Return W7 or W8, with FedAvg; options are those of ``networks.problem``."""
    workload = WORKLOADS[name]
    few = workload._replace(num_clients=2, num_examples=2)
    rows = dict(zip(("x", "y"), networks.draw(few), strict=True))
    small = fcojax.from_rows(rows, [2, 2])
    task = networks.problem(workload, small, **options)
    start = jax.eval_shape(task.init, jax.random.key(0))
    fields = {name: [leaf.shape[1:], leaf.dtype] for name, leaf in small.examples.items()}
    data = population(workload.num_clients, workload.num_examples, **fields)
    algorithm = fcojax.algorithms.fed_avg(task.loss)
    return rounds_of(algorithm, start, data, fcojax.Plan(*plan(workload)), rounds=10)


def low_rank(algorithm: str) -> Compilable:
    """Return W1 with a matrix of 32 x 32 and the nuclear norm."""
    workload = WORKLOADS["W1"]
    data = population(workload.num_clients, workload.num_examples, x=(32, 32), y=())
    chosen = made(algorithm, inner_products, nuclear())
    return rounds_of(chosen, _shape(32, 32), data, fcojax.Plan(*plan(workload)))


def shared(name: str, num_devices: int) -> Compilable:
    """Return the rounds of a linear workload whose clients are divided over devices."""
    program = of_workload(WORKLOADS[name], "fed_dual_avg")
    data = program.arguments[0]
    each = -(-data.num_clients // num_devices)
    rows = num_devices * each * data.max_size
    examples = {
        name: _shape(rows, *leaf.shape[1:], dtype=leaf.dtype)
        for name, leaf in data.examples.items()
    }
    # On a mesh the rows of each device are numbered from zero.
    offsets = _shape(num_devices * (each + 1), dtype=jnp.int32)
    weights = _shape(num_devices * each)
    data = dataclasses.replace(data, examples=examples, offsets=offsets, weights=weights)
    return program._replace(arguments=(data, *program.arguments[1:]), num_devices=num_devices)


def linear_systems() -> Compilable:
    """Return the library's functions that solve linear systems, in float64."""
    manifolds = (stiefel(), stiefel(retraction="qr"), grassmann())

    def solve(x, y, signal):
        inverses = [manifold.inverse_retract for manifold in manifolds]
        tangents = [inverse(x, y) for inverse in inverses if inverse is not None]
        return tangents, trend_filter().prox(signal, 1.0, 0.1)

    frame, signal = _shape(12, 3, dtype=jnp.float64), _shape(20, dtype=jnp.float64)
    return Compilable(solve, (frame, frame, signal), 1, x64=True)


def programs() -> dict[str, Callable[[], Compilable]]:
    """Return all programs by name."""
    found: dict[str, Callable] = {
        f"{name} {algorithm}": functools.partial(of_workload, WORKLOADS[name], algorithm)
        for name in ("W1", "W2", "W3", "W5")
        for algorithm in ("fed_avg", "fed_dual_avg")
    }
    for n in (25, 100, 400, 10_000):
        found[f"W4 {n:,} points"] = functools.partial(grid_of, n)
    for n in (10, 100, 1000, 10_000):
        found[f"W6 {n:,} clients per round"] = functools.partial(many_clients, n)
    for name in ("W7", "W8"):
        found[f"{name} fed_avg"] = functools.partial(of_network, name)
    found["W7 with dropout"] = functools.partial(of_network, "W7", dropout_rates=(0.25, 0.5))
    for name in ("fed_dual_avg", "fed_mid"):
        found[f"low rank {name}"] = functools.partial(low_rank, name)
    for name in ("W1", "W2", "W3"):
        found[f"8 devices, {name}"] = functools.partial(shared, name, 8)
    return found | {"float64, linear systems": linear_systems}


# What a compiled program launches, read from XLA's text. A launch is an instruction that reads or
# writes memory: a fusion, a copy, a call of a library. It counts the bytes of operands and results;
# an operand that a kernel only slices counts its slices.

# Instructions without a kernel: names of buffers, and control flow, whose bodies are counted.
_FREE = re.compile(
    r"parameter|constant|tuple|get-tuple-element|bitcast|after-all|optimization-barrier"
    r"|(partition|replica)-id|add-dependency|domain|iota|[\w-]+-done|async-update"
)
_HOST = re.compile(r"send|recv|infeed|outfeed")
_CROSSING = re.compile(r"all-|reduce-scatter|collective|ragged-all")
_SLICES = ("dynamic-slice", "gather", "slice")
_SIZES = {"pred": 1, "bf16": 2, "f8e4m3fn": 1, "f8e5m2": 1, "s4": 1, "u4": 1, "token": 0}
_SHAPE = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,<= ]*)\]")


class Instruction(NamedTuple):
    """One line of a computation: its name, type, operation, operands and attributes."""

    name: str
    type: str
    op: str
    operands: tuple[str, ...]
    rest: str
    root: bool


# By kind of total, and by name for library calls and for bytes between devices.
Totals = collections.Counter[tuple[str, str]]


class Launches(NamedTuple):
    """Totals of a program.

    Attributes:
      kernels: launches of every kind.
      bytes: bytes that the launches read and write.
      calls: launches that call libraries, by name.
      crossing: bytes sent between devices, by operation.
      waits: conditions that depend on data, for which the host may wait.
      host: transfers from and to the host's memory, and calls to the host.
    """

    kernels: int
    bytes: int
    calls: dict[str, int]
    crossing: dict[str, int]
    waits: int
    host: int


def launches(text: str) -> Launches:
    """Return the launches of a program, with its loops multiplied out.

    Args:
      text: the optimised program, as ``compiled.as_text()`` returns it.
    """
    found = _of(parsed(text), "ENTRY", {})
    calls, crossing = (
        {name: value for (kind, name), value in found.items() if kind == wanted}
        for wanted in ("calls", "crossing")
    )
    kernels, size, waits, host = (found[kind, ""] for kind in ("kernels", "bytes", "waits", "host"))
    return Launches(kernels, size, calls, crossing, waits, host)


def parsed(text: str) -> dict[str, dict[str, Instruction]]:
    """Return the instructions of every computation by name, with the entry also as ``ENTRY``."""
    found: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if line and not line[0].isspace():
            head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line.rstrip())
            if head:
                current = found[head.group(2)] = {}
                if head.group(1):
                    found["ENTRY"] = current
        elif " = " in line:
            instruction = _instruction(line.strip())
            current[instruction.name] = instruction
    return found


def num_bytes(type_text: str) -> int:
    """Return the bytes of a type, which may be a tuple: 33 for ``(f32[2,4]{1,0}, pred[])``."""
    total = 0
    for kind, dims in _SHAPE.findall(type_text):
        bits = re.search(r"\d+", kind)
        size = _SIZES[kind] if kind in _SIZES else int(bits.group()) // 8 if bits else 0
        sides = [int(side.strip("<= ")) for side in dims.split(",") if side.strip()]
        total += size * math.prod(sides)
    return total


def _instruction(line: str) -> Instruction:
    left, right = line.split(" = ", 1)
    root = left.startswith("ROOT ")
    kind, right = _until_closed(right) if right.startswith("(") else right.split(" ", 1)
    op, right = right.strip().split("(", 1)
    arguments, rest = _until_closed("(" + right)
    operands = tuple(
        match.group(1)
        for part in _split(arguments[1:-1])
        if (match := re.search(r"%?([\w.\-]+)$", part.strip()))
    )
    return Instruction(left.removeprefix("ROOT ").lstrip("%"), kind, op, operands, rest, root)


def _depths(text: str):
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        yield index, letter, depth


def _until_closed(text: str) -> tuple[str, str]:
    """Split after the bracket that closes the first one."""
    end = next((index + 1 for index, _, depth in _depths(text) if depth == 0), len(text))
    return text[:end], text[end:]


def _split(arguments: str) -> list[str]:
    """Split at the commas outside brackets."""
    commas = [index for index, letter, depth in _depths(arguments) if (letter, depth) == (",", 0)]
    ends = [*commas, len(arguments)]
    return [arguments[a + 1 : b] for a, b in zip([-1, *commas], ends, strict=True)]


def _of(computations, name: str, known: dict) -> Totals:
    """Return the totals of a computation, by kind and name."""
    if name not in known:
        total = collections.Counter()
        for each in computations.get(name, {}).values():
            inner, times = _of_one(computations, computations[name], each, known)
            for kind, value in inner.items():
                total[kind] += times * value
        known[name] = total
    return known[name]


def _of_one(computations, body, each: Instruction, known) -> tuple[Totals, int]:
    """Return the launches of one instruction, and how many times it runs."""
    if _FREE.fullmatch(each.op):
        return collections.Counter(), 1
    if each.op == "while":
        inner = _of(computations, _called(each, "body")[0], known)
        trips = _trips(computations, each)
        if trips is not None:
            return inner, trips
        condition = _of(computations, _called(each, "condition")[0], known)
        return inner + condition + collections.Counter({("waits", ""): 1}), 1
    if each.op == "conditional":
        names = "branch_computations|true_computation|false_computation"
        branches = [_of(computations, branch, known) for branch in _called(each, names)]
        most = max(branches, key=lambda branch: branch["kernels", ""])
        return most + collections.Counter({("waits", ""): 1}), 1
    if each.op in ("call", "async-start") and (called := _called(each, "to_apply|calls")):
        return _of(computations, called[0], known), 1
    inner = _called(each, "calls") if each.op == "fusion" else []
    size = _fusion_bytes(computations[inner[0]]) if inner else _bytes(body, each)
    found = collections.Counter({("kernels", ""): 1, ("bytes", ""): size})
    # Memory space 5 is the host's.
    host = _HOST.match(each.op) is not None or "S(5)" in each.type
    if each.op == "custom-call":
        target = re.search(r'custom_call_target="([^"]+)"', each.rest)
        name = target.group(1) if target else "?"
        found["calls", name], host = 1, "callback" in name or "Host" in name
    if _CROSSING.match(each.op):
        found["crossing", each.op.removesuffix("-start")] = num_bytes(each.type)
    found["host", ""] = int(host)
    return found, 1


def _trips(computations, loop: Instruction) -> int | None:
    """Return how often a loop runs; ``None`` if that depends on data.

    XLA for GPUs annotates the number. Elsewhere it is the bound of a counter that starts at zero.
    """
    written = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest)
    if written:
        return int(written.group(1))
    condition = computations.get(*_called(loop, "condition"), {})
    compared = [each for each in condition.values() if each.op == "compare"]
    if len(compared) != 1 or "direction=LT" not in compared[0].rest:
        return None
    bound = condition.get(compared[0].operands[1])
    number = "".join(bound.operands) if bound is not None and bound.op == "constant" else ""
    return int(number) if number.isdigit() else None


def _called(each: Instruction, names: str) -> list[str]:
    found = re.findall(rf"\b(?:{names})=(\{{[^}}]*\}}|%?[\w.\-]+)", each.rest)
    return [name.strip(" %") for part in found for name in part.strip("{}").split(",")]


def _bytes(body, each: Instruction) -> int:
    def size(name):
        return num_bytes(body[name].type) if name in body else 0

    if each.op in _SLICES:
        return 2 * num_bytes(each.type)
    if each.op == "dynamic-update-slice":
        return 2 * size(each.operands[1])
    return num_bytes(each.type) + sum(map(size, each.operands))


def _fusion_bytes(inner) -> int:
    """Return the bytes of a fusion; an operand that it only slices counts its slices."""
    users = collections.defaultdict(list)
    for instruction in inner.values():
        for position, operand in enumerate(instruction.operands):
            users[operand].append((position, instruction))
    total = 0
    for instruction in inner.values():
        if instruction.op != "parameter":
            continue
        used = users[instruction.name]
        sliced = all(
            position == 0 and user.op in (*_SLICES, "dynamic-update-slice")
            for position, user in used
        )
        slices = sum(num_bytes(user.type) for _, user in used if user.op in _SLICES)
        total += slices if sliced else num_bytes(instruction.type)
    (root,) = [instruction for instruction in inner.values() if instruction.root]
    outputs = [inner[name] for name in root.operands] if root.op == "tuple" else [root]
    for output in outputs:
        while output.op == "bitcast":
            output = inner[output.operands[0]]
        written = inner[output.operands[1]] if output.op == "dynamic-update-slice" else output
        total += num_bytes(written.type)
    return total


# What the host launches, read from XLA's list of thunks.

_THUNK = re.compile(r"^( *)(\d+): k(\w+)")
# These have no launch of their own.
_CONTAINERS = ("While", "Conditional", "Sequential", "AsyncDone", "AsyncStart")


class Launched(NamedTuple):
    """How a program's kernels reach a GPU.

    Attributes:
      launches: of the host: graphs, and kernels outside of graphs.
      graphs: launches of graphs.
      inside: kernels inside graphs.
    """

    launches: int
    graphs: int
    inside: int


def launched(thunks: str, names: str, text: str) -> Launched:
    """Return what the host launches, with its loops multiplied out.

    Args:
      thunks: the dump ``thunk_sequence_after_thunk_passes``.
      names: the dump ``thunk_metadata``, with the instruction of each thunk.
      text: the optimised program.
    """
    computations = parsed(text)
    loops = {each.name: each for body in computations.values() for each in body.values()}
    of_thunk = {
        int(number): name
        for name, number in re.findall(r'annotation: "([^"]+)"\s*thunk_id: (\d+)', names)
    }
    launches = graphs = inside = 0
    # Indentation, times and whether in a graph, of each block that is open.
    blocks: list[tuple[int, int, bool]] = [(-1, 1, False)]
    condition_of: int | None = None  # the indentation of the loop whose condition is read
    for line in thunks.splitlines():
        if line.strip() == "condition:":
            condition_of = blocks[-1][0]
        elif line.strip() == "body:":
            condition_of = None
        found = _THUNK.match(line)
        if not found:
            continue
        depth, kind = len(found.group(1)), found.group(3)
        while blocks[-1][0] >= depth:
            blocks.pop()
        _, times, in_graph = blocks[-1]
        if condition_of is not None and not in_graph:
            continue  # the host counts the rounds of a loop of known length
        if kind == "While":
            loop = loops.get(of_thunk.get(int(found.group(2)), ""))
            trips = None if loop is None else _trips(computations, loop)
            blocks.append((depth, times * (trips or 1), in_graph))
        elif kind == "CommandBuffer":
            launches, graphs = launches + times, graphs + times
            blocks.append((depth, times, True))
        elif kind in _CONTAINERS:
            blocks.append((depth, times, in_graph))
        elif in_graph:
            inside += times
        else:
            launches += times
    return Launched(launches, graphs, inside)


# The devices, and the table. Without the versions of the driver and of CUDA, XLA puts neither loops
# nor calls of libraries into graphs.

_H200 = """
gpu_device_info {
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H200"
"""


class Device(NamedTuple):
    """The description of a device.

    Attributes:
      name: the name in the table.
      memory: its memory in bytes.
      launch: seconds from one launch of the host to the next; an assumption.
      kernel: seconds of the smallest kernel in a graph; an assumption.
      bandwidth: bytes per second, as stated by the manufacturer.
      peak: float32 operations per second in products at full precision, from the same source.
    """

    name: str
    memory: int
    launch: float
    kernel: float
    bandwidth: float
    peak: float


# What XLA records in graphs by default.
_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION"
# A TPU runs its program without launches from the host. A float32 product at full precision takes
# six bfloat16 operations, of which it does 197 T per second.
DEVICES = {
    "cuda": Device("NVIDIA H200", int(1.4e11), 2.5e-6, 1e-6, 4.8e12, 6.7e13),
    "tpu": Device("TPU v5e", int(1.6e10), 0.0, 0.0, 8.19e11, 1.97e14 / 6),
}


@functools.cache
def devices_of(kind: str, number: int) -> list:
    """Return the described devices; raise ``RuntimeError`` without their compiler."""
    if kind == "cuda":
        described = topologies.get_topology_desc(
            "H200", platform="cuda", target_config=_H200, topology=f"1x1x{number}"
        )
    else:
        described = topologies.get_topology_desc("v5e:2x4", platform="tpu")
    return described.devices[:number]


def traced(kind: str, program: Compilable):
    """Return the program, traced with the accelerator's rules for shapes on described devices."""
    devices = np.array(devices_of(kind, program.num_devices))
    mesh = jax.sharding.Mesh(devices.reshape(1, -1), ("sweep", "clients"))
    everywhere = jax.sharding.PartitionSpec()

    def placed(argument):
        if program.num_devices > 1 and isinstance(argument, fcojax.ClientData):
            spread = dataclasses.replace(argument, mesh=mesh).with_products(argument.products)
            return jax.tree.map(functools.partial(shape, spec=spread.shard_spec), spread)
        return jax.tree.map(shape, argument)

    def shape(leaf, spec=everywhere):
        leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        dtype = leaf.dtype
        if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
            with jax.enable_x64(program.x64):
                dtype = jax.dtypes.canonicalize_dtype(dtype)
        sharding = jax.sharding.NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=sharding)

    with jax.enable_x64(program.x64), pretend(kind, DEVICES[kind].memory):
        return jax.jit(program.function).trace(*map(placed, program.arguments))


def products(jaxpr) -> float:
    """Return the operations of a jaxpr's products and convolutions, with scans multiplied out."""
    total = 0.0
    for eqn in jaxpr.eqns:
        out = sum(math.prod(getattr(var.aval, "shape", ())) for var in eqn.outvars[:1])
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += 2.0 * out * math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
        elif eqn.primitive.name == "conv_general_dilated":
            kernel, numbers = eqn.invars[1].aval.shape, eqn.params["dimension_numbers"]
            total += 2.0 * out * math.prod(kernel) / kernel[numbers.rhs_spec[0]]
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        jaxprs = [getattr(leaf, "jaxpr", leaf) for leaf in jax.tree.leaves(eqn.params)]
        inner = [products(each) for each in jaxprs if hasattr(each, "eqns")]
        # Only one branch of a conditional runs.
        total += times * (max(inner, default=0.0) if eqn.primitive.name == "cond" else sum(inner))
    return total


def measured(kind: str, program: Compilable, graphs: str = "") -> dict:
    """Compile one program; return its row."""
    traced_program = traced(kind, program)
    with jax.enable_x64(program.x64):
        lowered = traced_program.lower(lowering_platforms=(kind,))
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {}
        if kind == "cuda":
            options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
            if graphs:
                options["xla_gpu_enable_command_buffer"] = _GRAPHS + graphs.replace("+", ",")
        began = time.perf_counter()
        compiled = lowered.compile(compiler_options=options)
        seconds = time.perf_counter() - began
        thunks, names = (
            "".join(path.read_text() for path in pathlib.Path(folder).glob(f"*.{part}.txt"))
            for part in ("thunk_sequence_after_thunk_passes", "thunk_metadata")
        )
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text is not None and memory is not None, "both compilers report them"
    found = launches(text)
    sent = launched(thunks, names, text) if kind == "cuda" else Launched(found.kernels, 0, 0)
    operations = products(traced_program.jaxpr.jaxpr) / program.rounds
    row = {
        "compile_s": seconds,
        "kernels": found.kernels / program.rounds,
        "in_graphs": sent.inside / program.rounds,
        "launches": sent.launches / program.rounds,
        "mb_moved": found.bytes / program.rounds / 1e6,
        "temporary_mb": memory.temp_size_in_bytes / 1e6,
        "total_mb": (memory.temp_size_in_bytes + memory.argument_size_in_bytes) / 1e6,
        "calls": {name: number / program.rounds for name, number in found.calls.items()},
        "crossing_kb": {
            name: number / program.rounds / 1e3 for name, number in found.crossing.items()
        },
        "waits": found.waits / program.rounds,
        "host": found.host / program.rounds,
    }
    return row | modelled(kind, found, sent, operations, program.rounds)


def modelled(
    kind: str, found: Launches, sent: Launched, operations: float, rounds: int
) -> dict[str, float]:
    """Return the parts of a round's modelled time, in milliseconds, and their sum."""
    device = DEVICES[kind]
    seconds = device.launch * sent.launches + device.kernel * sent.inside
    parts = {
        "launches_ms": 1e3 * seconds / rounds,
        "bytes_ms": 1e3 * found.bytes / rounds / device.bandwidth,
        "products_ms": 1e3 * operations / device.peak,
    }
    return parts | {"modelled_ms": sum(parts.values())}


# The columns of the table.
_COLUMNS = {
    "case": "program",
    "kernels": "kernels per round",
    "in_graphs": "in graphs",
    "launches": "launches of the host",
    "mb_moved": "MB moved",
    "temporary_mb": "temporary MB",
    "total_mb": "total MB",
    "calls": "library calls",
    "waits": "waits",
    "host": "host transfers",
    "crossing_kb": "kB across devices",
    "launches_ms": "launches, ms",
    "bytes_ms": "bytes, ms",
    "products_ms": "products, ms",
    "modelled_ms": "modelled ms",
    "compile_s": "to compile, s",
    "failed": "failed",
}


def main(arguments: list[str] | None = None) -> None:
    """Print a JSON line for each program, and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_for")
    parser.add_argument("kind", choices=list(DEVICES))
    parser.add_argument("--only", default="", help="beginnings of names, separated by ;")
    parser.add_argument("--graphs", default="", help="+WHILE, for what graphs also have")
    parser.add_argument("--out", type=pathlib.Path, help="the table's file; JSON goes beside it")
    options = parser.parse_args(arguments)
    rows: list[dict] = []
    for name, make in programs().items():
        if name.startswith(tuple(options.only.split(";"))):
            row = attempt(name, lambda make=make: measured(options.kind, make(), options.graphs))
            rows.append(row | {"device": DEVICES[options.kind].name})
            print(json.dumps(rows[-1]), flush=True)
    print("\nCompiled, not run.\n\n" + table(rows, _COLUMNS), flush=True)
    if options.out:
        options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1))
        options.out.write_text(table(rows, _COLUMNS))
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
