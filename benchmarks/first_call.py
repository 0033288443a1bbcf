"""The seconds until a first result: tracing, lowering, compiling, running; by XLA's flags.

    python -m benchmarks.first_call [--only="W1;W4"] [--quick]

A GPU's compiler times kernels for each product on the device. The rows of one program differ in
how: as by default, not at all, with the kernels of cuBLAS alone or of Triton alone, and with the
choices that a process before has kept. What tuning costs is the difference of two rows. Each row
has its own process, without a cache of programs, and ends with the products that are tuned: how
many, and how many different ones. On a CPU the flags change nothing.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from benchmarks.cases import table

FLAGS = {
    "default": "",
    "no tuning": "--xla_gpu_autotune_level=0",
    "cuBLAS alone": "--xla_gpu_enable_triton_gemm=false",
    "Triton alone": "--xla_gpu_cublas_fallback=false",
    "kept choices, first": "--xla_gpu_per_fusion_autotune_cache_dir={kept}",
    "kept choices, then": "--xla_gpu_per_fusion_autotune_cache_dir={kept}",
}
CASES = ("W1", "W3", "W4", "W6", "W7", "W8")
_PHASES = ("trace", "lower", "compile", "first_run", "next_run")
# Products in XLA's text: kernels of Triton by their arguments, calls of the libraries by theirs.
_TUNED = re.compile(
    r"^%gemm_fusion\S+ (\(.*\)) -> .*\{$|= (.*) custom-call\(.*__(?:cublas|cudnn)", re.MULTILINE
)


def tuned_products(text: str) -> tuple[int, int]:
    """Return how many products of a compiled program are tuned, and how many differ in shape."""
    found = ["".join(each) for each in _TUNED.findall(text)]
    return len(found), len({re.sub(r"[\w.]+: |\{[\d,]*\}", "", each) for each in found})


def measure(name: str, quick: bool) -> dict:
    """Return the seconds of each phase of one program in this process."""
    import jax
    import jax.numpy as jnp

    import fcojax
    from benchmarks import networks, settings
    from benchmarks.on_device import sized
    from benchmarks.workloads import NETWORKS, draw

    jax.config.update("jax_enable_compilation_cache", False)
    workload = sized("W1" if name == "W4" else name, quick)
    x, y = draw(workload)
    if workload.model in NETWORKS:
        data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
        chosen, hparams, params = networks.setting(workload, "fed_avg", data)
    else:
        chosen, hparams, params, data = settings.setting(workload, "fed_dual_avg", x, y)
    loop, key = fcojax.run, jax.random.key(0)
    if name == "W4":
        loop, key = fcojax.sweep, key[None]
        hparams = jax.tree.map(lambda leaf: jnp.full(25, leaf, jnp.float32), hparams)
    plan = fcojax.Plan(*settings.plan(workload))
    rounds = functools.partial(loop, chosen, plan=plan, num_rounds=10, eval_every=10)
    arguments, found = jax.block_until_ready((hparams, params, data.to_device(), key)), {}
    began = time.perf_counter()

    def ended(phase):
        nonlocal began
        found[phase], began = time.perf_counter() - began, time.perf_counter()

    traced = jax.jit(rounds).trace(*arguments)
    ended("trace")
    lowered = traced.lower()
    ended("lower")
    compiled = lowered.compile()
    ended("compile")
    for phase in ("first_run", "next_run"):
        jax.block_until_ready(compiled(*arguments))
        ended(phase)
    products, different = tuned_products(compiled.as_text() or "")
    return found | {"products": products, "different": different}


def main(arguments: list[str] | None = None) -> None:
    """Print a JSON line for each program and each choice of flags, and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_call")
    parser.add_argument("--only", default=";".join(CASES), help="programs, separated by ;")
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument("--measure", choices=CASES, help="one program in this process")
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(options.measure, options.quick)))
        return
    rows = []
    for name in options.only.split(";"):
        with tempfile.TemporaryDirectory() as kept:
            for label, flags in FLAGS.items():
                given = f"{os.environ.get('XLA_FLAGS', '')} {flags.format(kept=kept)}".strip()
                command = [sys.executable, "-m", "benchmarks.first_call", f"--measure={name}"]
                ran = subprocess.run(
                    command + ["--quick"] * options.quick,
                    env=os.environ | {"XLA_FLAGS": given},
                    capture_output=True,
                    text=True,
                )
                lines = (ran.stderr if ran.returncode else ran.stdout).strip().splitlines() or [""]
                found = {"failed": lines[-1][:200]} if ran.returncode else json.loads(lines[-1])
                rows.append({"case": name, "flags": label} | found)
                print(json.dumps(rows[-1]), flush=True)
    columns = ("case", "flags", *_PHASES, "products", "different", "failed")
    names = {name: f"{name.replace('_', ' ')}, s" if name in _PHASES else name for name in columns}
    print("\n" + table(rows, names))
    parser.exit(any("failed" in row for row in rows))


if __name__ == "__main__":
    main()
