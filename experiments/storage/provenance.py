"""The origin of a run's numbers: what must be equal when it is resumed, and what may differ."""

import contextlib
import datetime
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

import fcojax
from experiments.report import rows as tidy

# Version of the workdir layout; increment on incompatible changes.
LAYOUT = 5
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax")
# Options of JAX that affect the numbers.
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)
# The folder of a run on a GPU that has its programs, and XLA's choices of kernels.
COMPILED = "compiled"
_CHOICES = "xla_gpu_per_fusion_autotune_cache_dir"  # as JAX calls it
# What must be equal when a run is resumed, and what may differ after ``--resume=anyway``.
NUMBERS, CODE = ("layout", "config", "options"), ("code",)


def provenance(config: dict, file: pathlib.Path, command: list[str]) -> dict[str, Any]:
    """Return everything needed to repeat a run.

    Args:
      config: the numbers of the run.
      file: the config file.
      command: the command line as it was typed.
    """
    return {
        "layout": LAYOUT,
        "config": tidy.plain(config),  # as it will be read back, with infinity as null
        "command": command,
        "options": {name: jax.config.values[name] for name in _OPTIONS},
        "code": {"the config file": _hash(file)} | _code_of_users(),
        # A checkout on the path has no metadata.
        "versions": {"fcojax": fcojax.__version__}
        | {name: importlib.metadata.version(name) for name in _PACKAGES}
        | {"python": sys.version.split()[0]},
        "devices": [str(device) for device in jax.devices()],
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "device_kind": jax.devices()[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "compiled": COMPILED if jax.default_backend() == "gpu" else None,
        "git_commit": _commit(),
    }


@contextlib.contextmanager
def same_kernels(workdir: pathlib.Path) -> Iterator[None]:
    """Read and store the programs of a run on a GPU in its workdir, within the ``with`` block.

    XLA times several kernels for each product, and in another process it may choose another one,
    whose sums have other bits. So a run that is resumed reads what was chosen before. A new run
    begins with the choices in JAX's compilation cache, and leaves its own there.
    """
    if jax.default_backend() != "gpu":
        yield
        return
    cache, own = pathlib.Path(jax.config.values["jax_compilation_cache_dir"]), workdir / COMPILED
    if (cache / _CHOICES).is_dir() and not own.exists():
        shutil.copytree(cache / _CHOICES, own / _CHOICES)
    jax.config.update("jax_compilation_cache_dir", os.fspath(own))
    compilation_cache.reset_cache()  # JAX opens it once
    yield
    if (own / _CHOICES).is_dir():
        shutil.copytree(own / _CHOICES, cache / _CHOICES, dirs_exist_ok=True)


def difference(theirs: dict[str, Any], ours: dict[str, Any], parts: Sequence[str]) -> str | None:
    """Return the first entry of these parts that differs, or ``None``.

    Modules that only one of the two has loaded do not count.

    Example:
      >>> difference({"config": {"seeds": [0]}}, {"config": {"seeds": [1]}}, ["config"])
      'with seeds = [0] and this one has [1]'
    """
    for part in parts:
        old: Any = theirs.get(part)
        new: Any = ours[part]
        if not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for key in sorted({*(old or {}), *new}):
            before, now = (old or {}).get(key), new.get(key)
            if part == "code":
                if before and now and before != now:
                    return f"by another version of {key}"
            elif before != now:
                return f"with {key} = {before} and this one has {now}"
    return None


def _commit() -> str | None:
    """Return the commit of the source, if it is a checkout and git is installed."""
    here = pathlib.Path(__file__)
    try:
        # An environment may be inside the checkout of another project.
        ours, head = (
            subprocess.run(["git", *words], cwd=here.parent, capture_output=True, text=True).stdout
            for words in (["ls-files", here.name], ["rev-parse", "HEAD"])
        )
    except OSError:
        return None
    return head.strip() if ours else None


def _code_of_users() -> dict[str, str]:
    """Return hashes of all loaded modules outside installed packages and the launcher.

    The launcher reports and stores results, without an effect on numbers; studies make them.
    """
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    found = {"the library": fcojax.__version__}
    for name, module in sorted(sys.modules.items()):
        file, parts = getattr(module, "__file__", None) or "", name.split(".")
        launches = parts[0] == "experiments" and parts[1:2] != ["studies"]
        ours = file.endswith(".py") and not (file.startswith(installed) or launches)
        if ours and name != "__main__" and pathlib.Path(file).is_file():
            found[f"the module {name}"] = _hash(pathlib.Path(file))
    return found


def _hash(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
