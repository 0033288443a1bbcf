"""What every test runs under: float64, no silent broadcasting or promotion, a compile cache."""

import os
import pathlib

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
cache = pathlib.Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.fspath(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
