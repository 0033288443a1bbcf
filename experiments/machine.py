"""How JAX is set up for a run: precision, devices, logs and the cache of compiled programs."""

import logging
import os
import pathlib
import resource
from collections.abc import Callable

import jax
from absl import logging as absl_logging

from experiments.endings import Refused

# Sums on a GPU are added up in an order of their own, and kernels are chosen by timing them.
_DETERMINISTIC = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")


_FILES_NEEDED, _FILES_WANTED = 128, 4096


def open_files() -> None:
    """Raises the limit of open files as far as that helps; raises ``Refused`` if it is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = _FILES_WANTED if unlimited else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if not unlimited and hard < _FILES_NEEDED:
        raise Refused(
            f"only {hard} files may be open at a time and {_FILES_NEEDED} are needed; raise the "
            "limit of open files, as in ulimit -n 4096."
        )


def prepare(x64: bool, deterministic: bool, connect: Callable[[], None] = lambda: None) -> None:
    """Sets float64 if asked for, quiet logs, a compilation cache, and a device for each core.

    ``connect`` is called after all options and before anybody asks for devices.
    """
    if x64:
        jax.config.update("jax_enable_x64", True)
    if deterministic:
        known = os.environ.get("XLA_FLAGS", "").split()
        os.environ["XLA_FLAGS"] = " ".join([*known, *_DETERMINISTIC])
    chosen = "--xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] < 1 and not chosen:
        # One device per core uses both cores of a pair better than XLA's own threads do.
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    # What orbax warns of, a checkpoint that is not whole, is told in words of our own.
    absl_logging.set_verbosity(absl_logging.ERROR)
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
        raise Refused(
            f"JAX finds no device: {first}; unset JAX_PLATFORMS or set it to cpu."
        ) from error
