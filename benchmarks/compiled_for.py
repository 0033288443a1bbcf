"""What programs launch on an accelerator that is not there: compiled, not run.

    python -m benchmarks.compiled_for cuda [--only="W1;W2"] [--steps] [--beside=measured.json]
        [--save=FOLDER] [--out=FILE]
    python -m benchmarks.compiled_for tpu

XLA compiles for H200s or a TPU v5e from a description of them; no device and no driver is needed,
only the compiler, in an environment with the project's dependencies and

    pip install --no-deps jax-cuda12-plugin==X jax-cuda12-pjrt==X   # cuda; X is JAX's version
    pip install libtpu                                              # tpu

Each line has the seconds to compile, kernels a round with loops multiplied out, megabytes that they
read and write, temporary megabytes, calls of libraries, conditions that the host waits for, what
crosses devices, and a modelled time: launches times 2.5 microseconds plus bytes over the bandwidth
plus products over the peak, none of them hidden behind another. ``--steps`` compiles once more with
half of the local steps, and tells the kernels of a step from those around the steps. ``--beside``
puts what ``benchmarks.accelerator --out=measured.md`` has measured on a device, or on a processor,
beside the modelled time, and their ratio: above 1 this device is the faster one, by the model. The
exit status is 1 if a program could not be compiled.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# libtpu asks the machine what it is unless it is told.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

import fcojax
from benchmarks import compiled_programs, compiled_uses
from benchmarks.compiled_programs import Compilable
from benchmarks.launches import Launches, launches
from fcojax.xla.jaxprs import inner_programs
from fcojax.xla.rules import pretend

_H200 = """
gpu_device_info {
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
    """A device that is described and not there.

    Attributes:
      name: what its maker calls it.
      memory: its bytes.
      launch: seconds from one launch to the next; an assumption.
      bandwidth: bytes a second, as its maker states it.
      peak: float32 operations a second of products at full precision, from its maker's figures.
    """

    name: str
    memory: int
    launch: float
    bandwidth: float
    peak: float


# A TPU runs its program without launches from the host, and float32 products at full precision as
# six of its 197 T bfloat16 operations a second.
DEVICES = {
    "cuda": Device("NVIDIA H200", int(1.4e11), 2.5e-6, 4.8e12, 6.7e13),
    "tpu": Device("TPU v5e", int(1.6e10), 0.0, 8.19e11, 1.97e14 / 6),
}


@functools.cache
def devices_of(kind: str, number: int) -> list:
    """Return described devices; ``RuntimeError`` without their compiler."""
    if kind == "cuda":
        described = topologies.get_topology_desc(
            "H200", platform="cuda", target_config=_H200, topology=f"1x1x{number}"
        )
    else:
        described = topologies.get_topology_desc("v5e:2x4", platform="tpu")
    return described.devices[:number]


def traced(kind: str, program: Compilable):
    """Return the program, traced by the accelerator's rules for shapes on described devices."""
    devices = np.array(devices_of(kind, program.num_devices))
    mesh = jax.sharding.Mesh(devices.reshape(1, -1), ("sweep", "clients"))
    everywhere = jax.sharding.PartitionSpec()

    def placed(argument):
        if program.num_devices > 1 and isinstance(argument, fcojax.ClientData):
            spread = dataclasses.replace(argument, mesh=mesh)
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
    """Return the operations of a jaxpr's products and convolutions, its scans multiplied out."""
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
        inner = [products(each) for each in inner_programs(eqn)]
        # Of the branches of a conditional one is taken.
        total += times * (max(inner, default=0.0) if eqn.primitive.name == "cond" else sum(inner))
    return total


def measured(kind: str, program: Compilable, save: pathlib.Path | None = None) -> dict:
    """Compile one program; return its row."""
    traced_program = traced(kind, program)
    with jax.enable_x64(program.x64):
        lowered = traced_program.lower(lowering_platforms=(kind,))
    began = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - began
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text is not None and memory is not None, "both compilers report them"
    if save is not None:
        save.write_text(text)
    found = launches(text)
    operations = products(traced_program.jaxpr.jaxpr) / program.rounds
    row = {
        "compile_s": seconds,
        "kernels": found.kernels / program.rounds,
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
    return row | modelled(kind, found, operations, program.rounds)


def modelled(kind: str, found: Launches, operations: float, rounds: int) -> dict[str, float]:
    """Return the parts of a round's modelled time, in milliseconds, and their sum."""
    device = DEVICES[kind]
    parts = {
        "launches_ms": 1e3 * device.launch * found.kernels / rounds,
        "bytes_ms": 1e3 * found.bytes / rounds / device.bandwidth,
        "products_ms": 1e3 * operations / device.peak,
    }
    return parts | {"modelled_ms": sum(parts.values())}


# The cases of ``benchmarks.accelerator`` that are programs here.
CASES = {
    "W1": "W1 fed_dual_avg",
    "W2": "W2 fed_dual_avg",
    "W3": "W3 fed_dual_avg",
    "W5, num_clients = 1,000": "W5 fed_dual_avg",
    "W7, fed_avg": "W7 fed_avg",
    "W8, fed_avg": "W8 fed_avg",
    **{f"W4, {n:,} points": f"W4 {n:,} points" for n in (25, 100, 400, 10_000)},
    **{f"W6, cohort_size = {n:,}": f"W6 {n:,} clients a round" for n in (10, 100, 1000, 10_000)},
}


def beside(rows: list[dict], modelled_ms: dict[str, float]) -> dict[str, dict]:
    """Return what the rows of ``benchmarks.accelerator`` say of programs, beside modelled times.

    Args:
      rows: of its JSON file.
      modelled_ms: the times by program.
    """
    found = {}
    for row in rows:
        name = CASES.get(row["case"])
        if name in modelled_ms and "ms" in row:
            found[name] = {"measured_ms": row["ms"], "times": row["ms"] / modelled_ms[name]}
    return found


def steps_of(kind: str, name: str) -> dict[str, float]:
    """Return the kernels of a local step, and those around the steps, from two lengths."""
    few, many = (
        measured(kind, compiled_programs.of_length(name, steps))["kernels"] for steps in (5, 10)
    )
    each = (many - few) / 5
    return {"kernels_a_step": each, "kernels_around": many - 10 * each}


def rows_of(name: str, make: Callable, options: argparse.Namespace) -> Iterator[dict]:
    """Yield the rows of a program, or of all programs of a use."""
    programs = {name: make}
    if name in compiled_uses.uses() and isinstance(made := make(), dict):
        programs = {f"{name}: {part}": lambda each=each: each for part, each in made.items()}
    for part, make_one in programs.items():
        save = options.save and options.save / f"{options.kind}-{part.replace(' ', '_')}.hlo"
        row: dict = {"program": part, "device": DEVICES[options.kind].name}
        try:
            row |= measured(options.kind, make_one(), save)
            if options.steps and name.startswith(("W1 ", "W2 ", "W4 ", "low rank ")):
                row |= steps_of(options.kind, name)
        except Exception as error:  # the row says so, and the others go on
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            row["failed"] = f"{type(error).__name__}: {reason[:200]}"
        yield row


def table(rows: list[dict]) -> str:
    """Return the rows as a table in Markdown."""
    columns = {
        "kernels": "kernels a round",
        "kernels_a_step": "a step",
        "kernels_around": "around the steps",
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
        "measured_ms": "measured ms",
        "times": "measured by modelled",
        "compile_s": "to compile, s",
        "failed": "failed",
    }
    used = [name for name in columns if any(row.get(name) for row in rows)]
    lines = ["| program | " + " | ".join(columns[name] for name in used) + " |"]
    lines.append("|" + "---|" * (len(used) + 1))
    for row in rows:
        cells = [_shown(row.get(name, "")) for name in used]
        lines.append("| " + " | ".join([row["program"], *cells]) + " |")
    return "\n".join(lines) + "\n"


def _shown(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(number)}" for name, number in value.items())
    if not isinstance(value, float):
        return str(value).replace("|", "/")
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def main(arguments: list[str] | None = None) -> None:
    """Print a JSON line for each program, and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_for")
    parser.add_argument("kind", choices=list(DEVICES))
    parser.add_argument("--only", default="", help="beginnings of names, separated by ;")
    parser.add_argument("--steps", action="store_true", help="tell kernels of a local step apart")
    parser.add_argument("--beside", type=pathlib.Path, help="the JSON of benchmarks.accelerator")
    parser.add_argument("--save", type=pathlib.Path, help="folder for the compiled texts")
    parser.add_argument("--out", type=pathlib.Path, help="the table's file; JSON goes beside it")
    options = parser.parse_args(arguments)
    rows: list[dict] = []
    known = compiled_programs.workloads() | compiled_programs.meshes()
    known |= compiled_programs.algorithms() | compiled_uses.uses()
    for name, make in known.items():
        if not name.startswith(tuple(options.only.split(";"))):
            continue
        for row in rows_of(name, make, options):
            if options.beside and "modelled_ms" in row:
                found = json.loads(options.beside.read_text())
                row |= beside(found, {row["program"]: row["modelled_ms"]}).get(row["program"], {})
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.out:
                options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1))
                options.out.write_text(table(rows))
    print("\nCompiled, not run.\n\n" + table(rows), flush=True)
    sys.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
