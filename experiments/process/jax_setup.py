"""Setup of JAX for a run: precision, devices, logs and the cache of compiled programs."""

import logging
import os
import pathlib
from collections.abc import Callable

import jax

from experiments.process.errors import UserError

# On a GPU the order of sums varies, and kernels are chosen by timing.
_DETERMINISTIC = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")


def prepare(x64: bool, deterministic: bool, connect: Callable[[], None] = lambda: None) -> None:
    """Set up float64, quiet logs, a compilation cache, and a device for each core.

    Args:
      x64: whether to compute in double precision.
      deterministic: whether runs must be equal bit for bit.
      connect: called after all options are set and before JAX initialises its devices.
    """
    if x64:
        jax.config.update("jax_enable_x64", True)
    if deterministic:
        known = os.environ.get("XLA_FLAGS", "").split()
        os.environ["XLA_FLAGS"] = " ".join([*known, *_DETERMINISTIC])
    chosen = "--xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] < 1 and not chosen:
        # One device per core uses the cores better than XLA's own threads do.
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.WARNING)
    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache / "fcojax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    connect()
    try:
        jax.devices()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"JAX finds no device: {first}; unset JAX_PLATFORMS or set it to cpu."
        ) from error
