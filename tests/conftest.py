"""What every test runs under: float64, no silent broadcasting or promotion, a compile cache."""

import gc
import os
import pathlib

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
cache = pathlib.Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.fspath(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Tracing makes many objects and few cycles; looking for those took a twelfth of the time.
gc.freeze()
gc.set_threshold(50_000, 20, 10)

# Every compiled program maps memory of its own, and Linux allows a process 65,530 mappings; past
# that the next program to be compiled ends the process.
_MOST_MAPPINGS = 30_000


@pytest.fixture(autouse=True, scope="module")
def room_for_compiled_programs():
    """Forgets compiled programs between modules once they are too many."""
    yield
    mappings = pathlib.Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > _MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
