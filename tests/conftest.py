"""Settings of all tests: float64, no implicit broadcasting or promotion, fast compilation."""

import ctypes
import gc
import os
import pathlib
import sys

# Threads of numpy's and scipy's BLAS wait for each other in loops: three tests of small products
# took 16 s of processor time, and 1 s on one thread. numpy reads this once, when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest
from jax._src.interpreters import mlir
from jaxlib.mlir import ir

# Compilation dominates the tests; it takes half the time without LLVM's optimiser and, where they
# can be turned off, XLA's newer code generators. XLA reads this flag with the first device, and
# aborts on unknown flags. XLA_FLAGS="" compiles as users do.
_HASTY = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):
    _HASTY += " --xla_cpu_use_fusion_emitters=false"
    # Later versions keep contexts, too; loading dialects for each program is a ninth of the time.
    # A program that is lowered inside of another's lowering needs a context of its own.
    _new, _one = mlir.make_ir_context, mlir.make_ir_context()
    mlir.make_ir_context = lambda: _new() if ir.Context.current else _one
os.environ.setdefault("XLA_FLAGS", _HASTY)

# Operations of lowered programs carry no lines of Python, which nothing here reads: 5 per cent of
# the processor time of a new program.
jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
cache = pathlib.Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.fspath(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Tracing makes many objects and few cycles; garbage collection took a twelfth of the time.
gc.freeze()
gc.set_threshold(50_000, 20, 10)

# Every compiled program maps its own memory, and Linux allows a process 65,530 mappings; beyond
# that the next compilation aborts the process.
_MOST_MAPPINGS = 30_000
# Two workers that keep all compiled programs run out of memory during the slow tests.
_MOST_BYTES = 5 << 30
_PROCESS = pathlib.Path("/proc/self")
_forgotten_at = 0


@pytest.fixture(autouse=True, scope="module")
def room_for_compiled_programs():
    """Clear compiled programs between modules if there are too many."""
    yield
    mappings = _PROCESS / "maps"
    if mappings.exists() and mappings.read_bytes().count(b"\n") > _MOST_MAPPINGS:
        _forget()


@pytest.fixture(autouse=True)
def memory_for_the_next_test():
    """Clear compiled programs if they take too much memory, or twice that after the last time."""
    yield
    if (_PROCESS / "statm").exists() and _resident_bytes() > _MOST_BYTES + _forgotten_at:
        _forget()


@pytest.fixture(autouse=True)
def warnings_of_this_test():
    """Warn of the test's runs, of which the next run would warn."""
    yield
    if module := sys.modules.get("fcojax.engine.nonfinite"):
        module.warn_of_nonfinite(wait=True)


def _forget() -> None:
    global _forgotten_at
    jax.clear_caches()
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
        trim(0)
    _forgotten_at = _resident_bytes()


def _resident_bytes() -> int:
    return int((_PROCESS / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
