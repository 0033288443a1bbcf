"""The kernels of programs compiled for an accelerator, without the device.

    python -m benchmarks.compiled_for cuda [--only="W1;W2"]
    python -m benchmarks.compiled_for tpu

XLA compiles for an H200 or a TPU v5e from a description of it. No device and no driver is needed,
only the compiler, in an environment with the project's dependencies and

    pip install --no-deps jax-cuda13-plugin==X jax-cuda13-pjrt==X   # cuda; X is JAX's version
    pip install libtpu                                              # tpu

Each line has, per round and with loops multiplied out, kernels, megabytes that they read and write,
billion operations in products, library calls, and conditions for which the host waits; then the
products of different shape, for each of which a device times kernels, and the processor seconds of
compiling without that. The exit status is 1 if a program could not be compiled.
"""

import argparse
import collections
import dataclasses
import functools
import json
import math
import os
import re
import time
from collections.abc import Callable

os.environ |= {"JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1"}
# Without these variables libtpu queries the machine for a TPU.
os.environ |= {"TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

import fcojax
from benchmarks import networks
from benchmarks.cases import attempt, table
from benchmarks.first_call import tuned_products
from benchmarks.settings import plan, setting
from benchmarks.workloads import NETWORKS, SCALES, WORKLOADS, draw
from fcojax.extend import pretend


def rounds_of(name: str, algorithm: str, points: int = 0, **sizes) -> tuple:
    """Return rounds of a workload, or of a sweep: the function, its arguments, and their number."""
    workload = WORKLOADS[name]._replace(**sizes)
    x, y = draw(few := workload._replace(num_clients=2))
    if workload.model in NETWORKS:
        small = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * 2)
        chosen, hparams, start = networks.setting(few, algorithm, small)
    else:
        chosen, hparams, start, small = setting(few, algorithm, x, y)
    # The population has shapes in place of examples.
    ids = np.zeros((workload.num_clients * workload.num_examples, 1), np.int8)
    data = fcojax.from_rows(ids, [workload.num_examples] * workload.num_clients)
    examples, products = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((len(ids), *leaf.shape[1:]), leaf.dtype),
        (small.examples, small.products),
    )
    data = dataclasses.replace(data, examples=examples).with_products(products)
    hparams = jax.tree.map(lambda leaf: jnp.full((points,) if points else (), leaf), hparams)
    key, rounds = jax.random.key(0), 10 if workload.model in NETWORKS else 100
    how = {"plan": fcojax.Plan(*plan(workload)), "num_rounds": rounds, "eval_every": rounds}
    whole = functools.partial(fcojax.sweep if points else fcojax.run, chosen, **how)
    return whole, (hparams, start, data, key[None] if points else key), rounds


def programs() -> dict[str, Callable[[], tuple]]:
    """Return all programs by name."""
    part, dual = functools.partial(functools.partial, rounds_of), "fed_dual_avg"
    found = {f"{w} {a}": part(w, a) for w in ("W1", "W2", "W3", "W5") for a in ("fed_avg", dual)}
    found |= {f"W4 {n:,} points": part("W1", dual, points=n) for n in (25, 100, 400, 10_000)}
    for n in SCALES["W6"][1]:
        found[f"W6 {n:,} clients per round"] = part("W6", dual, cohort_size=n)
    return found | {f"{name} fed_avg": part(name, "fed_avg") for name in ("W7", "W8")}


# What a program launches, read from XLA's text: instructions but those of ``_FREE`` are kernels.
_LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*?)\)(?:, (\w+=.*))?$")
_PARTS = ("root", "name", "type", "op", "given", "rest")
_FREE = re.compile(
    r"parameter|constant|tuple|get-tuple-element|bitcast|after-all|optimization-barrier"
    r"|(partition|replica)-id|add-dependency|domain|iota|[\w-]+-done|async-update"
)
_SLICES, _UPDATE = ("dynamic-slice", "gather", "slice"), "dynamic-update-slice"
Line = dict[str, str]  # by the names in _PARTS
Computations = dict[str, dict[str, Line]]


def launches(text: str) -> collections.Counter[str]:
    """Return kernels, the bytes that they move, waits, and library calls by name, of a program."""
    found: Computations = {}
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line):
            found["ENTRY" if head[1] else head[2]] = {}
        elif read := _LINE.match(line):
            found[list(found)[-1]][read[2]] = dict(zip(_PARTS, read.groups(""), strict=True))
    return _totals(found, "ENTRY")


def _totals(found: Computations, name: str) -> collections.Counter[str]:
    """Return the totals of a computation, with loops multiplied out."""
    total: collections.Counter[str] = collections.Counter()
    for line in found.get(name, {}).values():
        if line["op"] == "while":
            trips = _trips(found, line)
            for inner in _called(line, "body" if trips else "body|condition"):
                once = _totals(found, inner)
                total.update({kind: (trips or 1) * value for kind, value in once.items()})
            total["waits"] += trips is None
        elif line["op"] == "conditional":
            branches = (_totals(found, inner) for inner in _called(line, r"\w+_computations?"))
            total.update(max(branches, key=lambda branch: branch["kernels"]), waits=1)
        elif line["op"] in ("call", "async-start") and _called(line, "to_apply|calls"):
            total.update(_totals(found, _called(line, "to_apply|calls")[0]))
        elif not _FREE.fullmatch(line["op"]):
            total.update(kernels=1, bytes=_bytes(found, found[name], line))
            total.update(re.findall(r'custom_call_target="([^"]+)"', line["rest"]))
    return total


def _trips(found: Computations, loop: Line) -> int | None:
    """Return how often a loop runs; ``None`` if that depends on data."""
    if written := re.search(r'known_trip_count":\{"n":"(\d+)"', loop["rest"]):
        return int(written[1])
    # Elsewhere than on GPUs it is not annotated: it bounds a counter that starts at zero.
    condition = found.get("".join(_called(loop, "condition")), {}).values()
    compared = [line["rest"] for line in condition if line["op"] == "compare"]
    bounds = [line["given"] for line in condition if line["op"] == "constant"]
    counts = len(compared) == len(bounds) == 1 and "direction=LT" in compared[0]
    return int(bounds[0]) if counts and bounds[0].isdigit() else None


def _called(line: Line, names: str) -> list[str]:
    found = re.findall(rf"\b(?:{names})=(\{{[^}}]*\}}|%?[\w.\-]+)", line["rest"])
    return [name.strip(" %") for part in found for name in part.strip("{}").split(",")]


def _operands(line: Line) -> list[str]:
    return re.findall(r"%([\w.\-]+)", line["given"])


def num_bytes(type_text: str) -> int:
    """Return the bytes of a type, which may be a tuple: 33 for ``(f32[2,4]{1,0}, pred[])``."""
    total = 0
    for bits, sides in re.findall(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,<= ]*)\]", type_text):
        total += int(bits or 8) // 8 * math.prod(map(int, re.findall(r"\d+", sides)))
    return total


def _bytes(found: Computations, body: dict[str, Line], line: Line) -> int:
    """Return the bytes of operands and results; one that is only sliced counts its slices."""
    if line["op"] in (*_SLICES, _UPDATE):
        part = body[_operands(line)[1]] if line["op"] == _UPDATE else line
        return 2 * num_bytes(part["type"])
    if line["op"] != "fusion":
        read = [body[name] for name in _operands(line) if name in body]
        return sum(num_bytes(each["type"]) for each in [line, *read])
    total, inner = 0, found[_called(line, "calls")[0]]
    for name, parameter in inner.items():
        if parameter["op"] == "parameter":
            users = [user for user in inner.values() if name in _operands(user)]
            slices = [user["type"] for user in users if user["op"] in _SLICES]
            parts = [user for user in users if user["op"] in (*_SLICES, _UPDATE)]
            sliced = len(parts) == len(users) and all(_operands(x)[0] == name for x in parts)
            total += sum(map(num_bytes, slices if sliced else [parameter["type"]]))
    (root,) = (each for each in inner.values() if each["root"])
    for output in [inner[name] for name in _operands(root)] if root["op"] == "tuple" else [root]:
        while output["op"] == "bitcast":
            output = inner[_operands(output)[0]]
        written = inner[_operands(output)[1]] if output["op"] == _UPDATE else output
        total += num_bytes(written["type"])
    return total


_H200 = """gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32
shared_memory_per_block: 49152 core_count: 132 shared_memory_per_core: 233472
threads_per_core_limit: 2048 fpus_per_core: 128 clock_rate_ghz: 1.98 block_dim_limit_x: 2147483647
block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000
l2_cache_size: 52428800 device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
registers_per_core_limit: 65536 registers_per_block_limit: 65536 cuda_compute_capability {
major: 9 minor: 0 } } platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H200" """
DEVICES = {  # arguments of ``get_topology_desc``, and bytes of memory
    "cuda": ({"topology_name": "H200", "target_config": _H200, "topology": "1x1x1"}, int(1.4e11)),
    "tpu": ({"topology_name": "v5e:2x2"}, int(1.6e10)),
}


def operations(jaxpr) -> float:
    """Return the operations of a jaxpr's products and convolutions, with scans multiplied out."""
    total = 0.0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            sides = [eqn.invars[0].aval.shape[axis] for axis in contracted]
            total += 2.0 * eqn.outvars[0].aval.size * math.prod(sides)
        elif eqn.primitive.name == "conv_general_dilated":
            kernel, numbers = eqn.invars[1].aval, eqn.params["dimension_numbers"]
            each = kernel.size / kernel.shape[numbers.rhs_spec[0]]
            total += 2.0 * eqn.outvars[0].aval.size * each
        leaves = [getattr(leaf, "jaxpr", leaf) for leaf in jax.tree.leaves(eqn.params)]
        inner = [operations(leaf) for leaf in leaves if hasattr(leaf, "eqns")]
        if eqn.primitive.name == "cond":  # one branch runs
            inner = [max(inner)]
        total += sum(inner) * (eqn.params["length"] if eqn.primitive.name == "scan" else 1)
    return total


def measured(kind: str, function: Callable, arguments: tuple, rounds: int = 1) -> dict:
    """Compile a program for a device that is not there; return its row."""
    described, memory = DEVICES[kind]
    device = topologies.get_topology_desc(platform=kind, **described).devices[0]
    place = jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), arguments
    )
    with pretend(kind, memory):
        traced = jax.jit(function).trace(*shapes)
    lowered, began = traced.lower(lowering_platforms=(kind,)), time.process_time()
    compiled = lowered.compile()
    seconds, text = time.process_time() - began, compiled.as_text() or ""
    used = compiled.memory_analysis()
    assert used is not None, "both compilers report it"
    found = {name: n / rounds for name, n in launches(text).items()}
    return {
        "kernels": found.pop("kernels"),
        "mb_moved": found.pop("bytes") / 1e6,
        "gflop": operations(traced.jaxpr.jaxpr) / rounds / 1e9,
        "waits": found.pop("waits", 0.0),
        "calls": found,
        "tuned": tuned_products(text)[1],
        "compile_s": seconds,
        "temporary_mb": used.temp_size_in_bytes / 1e6,
        "total_mb": (used.temp_size_in_bytes + used.argument_size_in_bytes) / 1e6,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a JSON line for each program, and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_for")
    parser.add_argument("kind", choices=list(DEVICES))
    parser.add_argument("--only", default="", help="beginnings of names, separated by ;")
    options, rows = parser.parse_args(arguments), []
    for name, make in programs().items():
        if name.startswith(tuple(options.only.split(";"))):
            rows.append(attempt(name, lambda make=make: measured(options.kind, *make())))
            print(json.dumps(rows[-1]), flush=True)
    print("\nCompiled, not run.\n\n" + table(rows, {name: name for row in rows for name in row}))
    parser.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
