"""Launches of compiled programs, on texts counted by hand and on programs for a CPU."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks import compiled_for
from benchmarks.compiled_for import launches

ROOT = pathlib.Path(__file__).parent.parent.parent

TEXT = """HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%rows (p.0: f32[100,8], p.1: s32[]) -> f32[1,8] {
  %p.0 = f32[100,8]{1,0} parameter(0)
  %p.1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,8]{1,0} dynamic-slice(%p.0, %p.1, %zero), dynamic_slice_sizes={1,8}
}

%step (s: (s32[], f32[100,8], /*index=2*/f32[8])) -> (s32[], f32[100,8], f32[8]) {
  %s = (s32[], f32[100,8]{1,0}, f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[100,8]{1,0} get-tuple-element(%s), index=1
  %w = f32[8]{0} get-tuple-element(%s), index=2
  %row.1 = f32[1,8]{1,0} fusion(%x, %i), kind=kLoop, calls=%rows
  %product = f32[8]{0} custom-call(%row.1, %w), custom_call_target="__cublas$gemm"
  %sum = f32[8]{0} all-reduce-start(%product), to_apply=%add
  %done = f32[8]{0} all-reduce-done(%sum)
  ROOT %t = (s32[], f32[100,8]{1,0}, f32[8]{0}) tuple(%i, %x, %done)
}

%while_unsteady (s: (f32[8])) -> (f32[8]) {
  %s = (f32[8]{0}) parameter(0)
  %v = f32[8]{0} get-tuple-element(%s), index=0
  %c = f32[8]{0} copy(%v)
  ROOT %t = (f32[8]{0}) tuple(%c)
}

ENTRY %main (a: (s32[], f32[100,8], f32[8])) -> f32[8] {
  %a = (s32[], f32[100,8]{1,0}, f32[8]{0}) parameter(0)
  %w.1 = (s32[], f32[100,8], f32[8]) while(%a), body=%step, x={"known_trip_count":{"n":"7"}}
  %v = f32[8]{0} get-tuple-element(%w.1), index=2
  %t = (f32[8]{0}) tuple(%v)
  %w.2 = (f32[8]{0}) while(%t), condition=%c, body=%while_unsteady
  ROOT %out = f32[8]{0} get-tuple-element(%w.2), index=0
}
"""


def test_loops_are_multiplied_out_and_gathers_read_what_they_gather():
    found = launches(TEXT)
    assert found["kernels"] == 7 * 3 + 1
    # The row is read and written; then the operands and results of the product, the sum and the
    # copy. The counter is read once.
    assert found["bytes"] == 7 * (32 + 32 + 4 + 3 * 32 + 2 * 32) + 2 * 32
    assert found["__cublas$gemm"] == 7 and found["waits"] == 1


def test_products_are_counted_through_loops_and_branches():
    def program(x):
        def body(x, _):
            return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x, x), None

        return jax.lax.scan(body, x, length=3)[0]

    jaxpr = jax.make_jaxpr(program)(jnp.ones((4, 4))).jaxpr
    assert compiled_for.operations(jaxpr) == 3 * 2 * 4**3


# Kernels per round on JAX 0.10.2 with CUDA 13. A change that raises them needs a reason.
BUDGET = {
    "W1 fed_avg": 41,
    "W1 fed_dual_avg": 51,
    "W2 fed_avg": 28,
    "W2 fed_dual_avg": 46,
    "W3 fed_dual_avg": 54,
    "W4 25 points": 53,
    "W4 100 points": 63,
    "W4 400 points": 64,
    "W4 10,000 points": 65,
    "W6 1,000 clients per round": 26,
    "W7 fed_avg": 209,
    "W8 fed_avg": 10_043,
}
# Products of different shape, for each of which the first call times kernels on the device.
TUNED = {"W7 fed_avg": 13, "W8 fed_avg": 9}
TEMPORARY_MB = {"W2 fed_avg": 30, "W2 fed_dual_avg": 30, "W6 1,000 clients per round": 23}


def run(*arguments, **variables):
    """Run Python in a process of its own: the compilers refuse flags of the tests."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": ""} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None,
    reason="XLA's compiler for NVIDIA's GPUs, the package jax-cuda13-plugin, is not installed",
)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("precision", "inputs"),
    # Without a device "tensorfloat32" chooses kernels in full float32.
    [("highest", set()), ("tensorfloat32", set()), ("bfloat16", {"tf32"})]
    + [("TF32_TF32_F32", {"tf32"}), ("BF16_BF16_F32", {"bf16"})],
)
def test_a_users_precision_chooses_the_instructions_of_products(tmp_path, precision, inputs):
    done = run(
        *("-m", "benchmarks.compiled_for", "cuda", "--only=W4 25 points;W7"),
        JAX_DEFAULT_MATMUL_PRECISION=precision,
        XLA_FLAGS=f"--xla_dump_to={tmp_path}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("jit_run", "jit_sweep"):
        kernels = [path.read_text() for path in tmp_path.glob(f"*{name}.*.ptx")]
        assert kernels
        found = re.findall(r"mma\S*\.f32\.(tf32|bf16)\.", "".join(kernels))
        assert set(found) == inputs, name


@pytest.mark.slow
@needs_compiler
def test_a_round_has_no_more_kernels_than_it_had():
    done = run("-m", "benchmarks.compiled_for", "cuda", f"--only={';'.join(BUDGET)}")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["case"] for row in rows] == list(BUDGET)
    for row in rows:
        assert row["kernels"] <= BUDGET[row["case"]] and row["waits"] == 0, row
        assert row["temporary_mb"] <= TEMPORARY_MB.get(row["case"], float("inf")), row
        assert row["tuned"] <= TUNED.get(row["case"], 3) and not row["calls"], row
