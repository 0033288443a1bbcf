"""The origin of a run's numbers: what must be equal when it is resumed, and what may differ."""

import ast
import contextlib
import datetime
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
import sysconfig
from typing import Any

import jax

from experiments.report import rows as tidy

# Version of the workdir layout; increment on incompatible changes.
LAYOUT = 4
_PACKAGES = ("fcojax", "jax", "jaxlib", "numpy", "optax", "flax")
_HERE = pathlib.Path(__file__).parent
# Options of JAX that affect the numbers.
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


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
        "code": {"config file": _outline(file)} | _code_of_users(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES}
        | {"python": sys.version.split()[0]},
        "devices": [str(device) for device in jax.devices()],
        "date": datetime.date.today().isoformat(),
        "machine": _machine(),
        "device_kind": jax.devices()[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "git_commit": _commit(),
    }


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> str | None:
    """Return the first difference that would mix two experiments in one folder, or ``None``.

    The text continues "the folder holds a run ...".
    """
    if theirs.get("layout") != LAYOUT:
        return "of an older launcher, which this one cannot resume"
    for what in ("config", "options"):
        old, new = theirs.get(what, {}), ours[what]
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return f"with {key} = {old.get(key)} and this one has {new.get(key)}"
    return None


def change_of_code(theirs: dict[str, Any], ours: dict[str, Any]) -> str | None:
    """Return the first change of version or source that may change numbers, or ``None``.

    Comments and docstrings do not count.
    """
    old, new = theirs.get("versions", {}).get("fcojax"), ours["versions"]["fcojax"]
    if old != new:
        return f"by fcojax {old} and this is fcojax {new}"
    if _minor(theirs) != _minor(ours):
        return None  # syntax trees differ between Python versions, which are reported
    before, now = theirs.get("code", {}), ours["code"]
    changed = sorted(name for name in {*before, *now} if name in before and name in now)
    changed = [name for name in changed if before[name] != now[name]]
    return f"by another version of the {_named(changed[0])}" if changed else None


def unlike(first: dict[str, Any], ours: dict[str, Any]) -> str | None:
    """Return the first difference between two processes that are to be one run, or ``None``."""
    theirs, versions = first["versions"], ours["versions"]
    return next(
        (
            f"with {name} {theirs[name]} and this one with {versions[name]}"
            for name in versions
            if theirs[name] != versions[name]
        ),
        difference(first, ours) or change_of_code(first, ours),
    )


def remarks(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the other differences, which change numbers only by rounding."""
    found = []
    for name in sorted({*theirs.get("versions", {}), *ours["versions"]} - {"fcojax"}):
        old, new = theirs.get("versions", {}).get(name), ours["versions"].get(name)
        if old != new:
            found.append(f"{name} was {old} and is {new}")
    for what in ("device_kind", "xla_flags"):
        if theirs.get(what) != ours[what]:
            found.append(f"{what} was {theirs.get(what)!r} and is {ours[what]!r}")
    if len(theirs.get("devices", [])) != len(ours["devices"]):
        found.append(
            f"there were {len(theirs.get('devices', []))} devices and are {len(ours['devices'])}"
        )
    return found


def _named(module: str) -> str:
    return module if module == "config file" else f"module {module}"


def _minor(known: dict[str, Any]) -> list[str]:
    return str(known.get("versions", {}).get("python", "")).split(".")[:2]


def _commit() -> str | None:
    """Return the commit of the source, if it is a checkout and git is installed.

    An installed library may be in an environment inside the checkout of another project.
    """
    try:
        ours = _git("ls-files", "--error-unmatch", pathlib.Path(__file__).name)
        found = _git("rev-parse", "HEAD")
    except OSError:
        return None
    return (ours and found) or None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=_HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _machine() -> str:
    """Return the processor, cores and memory that Linux reports."""
    model, memory = platform.processor() or platform.machine(), ""
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    return f"{model}, {os.cpu_count()} cores{memory}"


def _code_of_users() -> dict[str, str]:
    """Return hashes of all loaded modules outside installed packages and the launcher."""
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or file.startswith(installed):
            continue
        if not _is_launcher(name) and pathlib.Path(file).is_file():
            found[name] = _outline(pathlib.Path(file))
    return found


def _is_launcher(name: str) -> bool:
    """Return whether a module only reports and stores results, without an effect on numbers."""
    parts = name.split(".")
    return name == "__main__" or (parts[0] == "experiments" and parts[1:2] != ["studies"])


def _outline(path: pathlib.Path) -> str:
    """Hash a source file without its comments and docstrings."""
    module = ast.parse(path.read_bytes())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(module):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(module).encode()).hexdigest()
