"""Which package may import which: ground, the paper, the loop, satellites.

A module imports from its own package and from those above it, where a name is defined. The launcher
and the benchmarks use public names: ``fcojax``, its public packages, and ``fcojax.extend``, which
the library itself never imports.
"""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
GROUND = ("types", "tree", "memo", "arguments", "xla", "shuffle")
PAPER = ("transforms", "problems", "algorithms", "uploads")
LOOP = ("engine", "grid", "devices")
CORE = GROUND + PAPER + LOOP  # top to bottom
SATELLITES = (  # top to bottom
    "reference",
    "strengths",
    "robust",
    "attacks",
    "privacy",
    "clock",
    "rows",
    "personal",
    "theory",
    "check",
    "networks",
    "datasets",
    "bibliography",
)
FLOORS = CORE + SATELLITES
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("fcojax", "experiments", "benchmarks", "configs")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
# The package itself, its command, and the seam may import everything.
ENTRANCES = {"", "__main__", "starting", "extend"}
# Packages of the core that the launcher, configs and benchmarks never import.
PRIVATE = ("engine", "xla", "memo", "arguments", "shuffle")
# Exceptions, by package.
ALLOWED_UNTIL_PORTED = {
    "experiments": """
        arguments engine.optimality
        engine.participation.samplers engine.placement.chunk_size engine.placement.mesh
        engine.plan engine.program engine.state engine.stepper
        engine.stream engine.validation memo shuffle
        xla.rules
    """,
}


@functools.cache
def exported_functions(package):
    """Return the submodules of a package with the name of a function exported there."""
    tree = ast.parse(SOURCES[package].read_text("utf-8")) if package in SOURCES else ast.Module([])
    taken = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = {(node.module, f"{package}.{alias.name}") for node in taken for alias in node.names}
    return {name for source, name in names if source == name}


@functools.cache
def imports(module):
    """Return the modules that a module imports, also in functions, but not for type checking."""
    tree = ast.parse(SOURCES[module].read_text("utf-8"))
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If)]
    typing = [n for n in blocks if "TYPE_CHECKING" in ast.unparse(n.test)]
    unread = {id(node) for block in typing for node in ast.walk(block)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            # The submodule counts instead of its package, unless the package exports a function
            # of the same name, such as ``algorithms.fed_dual_avg``.
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = (names - exported_functions(node.module)) & SOURCES.keys()
            found |= modules | ({node.module} if names - modules else set())
    return found


def room(module):
    """Return ``problems`` for ``fcojax.problems.lasso``, ``experiments`` for the launcher."""
    top, *below = module.split(".")
    return (below[0] if below else "") if top == "fcojax" else top


def is_allowed(own, other):
    """Return whether a module of the package ``own`` may import the module ``other``."""
    top, its = other.split(".")[0], room(other)
    if top not in ("fcojax", "experiments", "benchmarks", "configs") or own == its:
        return True
    # The type of an algorithm and local work, but no method.
    if own == "engine" and its == "algorithms":
        return other.removeprefix("fcojax.algorithms.") in ("base", "local", "work")
    if own in FLOORS:
        is_facade = other == "fcojax" and own in SATELLITES
        return is_facade or its in FLOORS[: FLOORS.index(own)]
    return its not in PRIVATE if top == "fcojax" else top == "experiments"


@pytest.mark.parametrize("own", sorted({room(name) for name in SOURCES} - ENTRANCES))
def test_a_room_imports_only_what_its_floor_may(own):
    assert own in (*FLOORS, "experiments", "benchmarks", "configs"), "on no floor"
    members = [module for module in SOURCES if room(module) == own]
    imported = {other for module in members for other in imports(module)}
    forbidden = {other for other in imported if not is_allowed(own, other)}
    allowed = {f"fcojax.{name}" for name in ALLOWED_UNTIL_PORTED.get(own, "").split()}
    assert forbidden <= allowed


def test_reports_know_no_experiment_and_experiments_neither_each_other_nor_the_launcher():
    for module in SOURCES:
        parts = module.split(".")
        others = [other.split(".") for other in imports(module) if other.startswith("experiments.")]
        if parts[0] != "experiments":
            continue
        if parts[1:2] in (["report"], ["study"]):
            assert all(other[1] == "report" for other in others), module
        elif parts[1:2] == ["studies"]:
            # What all share, the lasso that compress takes of compare, and the scans of fmri.
            known = parts[:3], *([*parts[:2], name] for name in ("shared", "compare", "fmri"))
            others = [other for other in others if other[:3] not in known]
            assert all(other[1] in ("codecs", "report", "study") for other in others), module
        else:
            assert all(other[1] != "studies" for other in others), module


def test_nothing_is_imported_in_a_circle():
    graph = {module: imports(module) & SOURCES.keys() - {module} for module in SOURCES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which shows the circle


def test_no_private_part_of_jax_is_imported():
    for module in SOURCES:
        private = [m for m in imports(module) if m.startswith("jax.") and "._" in m]
        assert not private, f"{module} imports {private}"


def test_importing_the_library_starts_no_backend_and_loads_the_core_alone():
    # The number of devices can be set only before a backend exists.
    check = (
        "import fcojax, jax, sys; jax.config.update('jax_num_cpu_devices', 3); "
        "assert len(jax.devices('cpu')) == 3; print(*sys.modules); "
        "assert fcojax.networks.two_layer and 'flax' in sys.modules"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"flax", "orbax", "matplotlib", "sklearn", "h5py"}
    satellites = {room(module) for module in loaded if module.startswith("fcojax.")}
    assert not satellites & set(SATELLITES)
