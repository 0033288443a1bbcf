"""The structure of the repository, checked on its source: imports, file sizes and words."""

import ast
import graphlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = sorted(
    path
    for folder in ("fcojax", "experiments", "benchmarks", "configs")
    for path in (ROOT / folder).rglob("*.py")
)
TEXTS = [
    path
    for folder in ("fcojax", "experiments", "benchmarks", "configs", "docs", "tests", ".")
    for suffix in ("py", "md")
    for path in sorted((ROOT / folder).glob(f"*.{suffix}" if folder == "." else f"**/*.{suffix}"))
]
CONFIGS = [path for path in SOURCES if ROOT / "configs" in path.parents]
EXPERIMENTS = [path for path in SOURCES if ROOT / "experiments" in path.parents]
# Top to bottom; a module may import from its own group and from those above it.
GROUPS = (
    "types",
    "arguments",
    "tree",
    "factories",
    "memo",
    "xla",
    "shuffle",
    "problems",
    "networks",
    "datasets",
    "transforms",
    "reference",
    "algorithms",
    "engine",
    "uploads",
    "robust",
    "attacks",
    "privacy",
    "grid",
    "devices",
    "rows",
    "safetensors",
    "selection",
    "flower",
    "estimators",
    "theory",
    "check",
)
BANNED = ("utils", "util", "helpers", "helper", "misc", "common")
FORBIDDEN = re.compile(
    r"luck|culprit|stranger|\bso many\b|what it says of|is to be had|nobody can tell|\bwhoever\b"
    r"|(?<![a-z])heard(?![a-z])",
    re.IGNORECASE,
)
# Hyperparameters and data stay on the device; only these parts of the engine look from the host.
HOST_SIDE = (
    "compaction.py",
    "grid.py",
    "hparams.py",
    "mesh.py",
    "nonfinite.py",
    "recorded.py",
    "run.py",
    "samplers.py",
    "solve.py",
    "stream.py",
    "validation.py",
    "work.py",
)


def imports(path):
    """Every module that a file imports, by full name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def group(module):
    """The group of a ``fcojax`` module, or ``None``."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fcojax" and len(parts) > 1 else None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    relative = path.relative_to(ROOT)
    if relative.parts[0] != "fcojax" or relative.name == "__init__.py" and len(relative.parts) == 2:
        return
    own = relative.parts[1].removesuffix(".py")
    if own == "experiments":  # the launcher's public names; nothing in the library imports it
        return
    for module in imports(path):
        assert module != "fcojax.experiments", relative
        top = module.split(".")[0]
        assert top not in ("experiments", "benchmarks", "configs", "tests"), module
        other = group(module)
        if other in GROUPS:
            assert GROUPS.index(other) <= GROUPS.index(own), f"{relative} imports {module}"
        elif top == "fcojax" and other is not None:
            raise AssertionError(f"{relative} imports {module}, which is in no group")


def test_geometry_knows_no_clients_and_the_engine_no_algorithm():
    for path in (ROOT / "fcojax" / "transforms").rglob("*.py"):
        assert not [m for m in imports(path) if group(m) in ("problems", "algorithms")], path
    known = {"base", "local", "work"}
    for path in (ROOT / "fcojax" / "engine").rglob("*.py"):
        for module in imports(path):
            if module.startswith("fcojax.algorithms."):
                assert module.split(".")[2] in known, f"{path} imports {module}"


def test_only_experiments_and_benchmarks_see_flags():
    """And commands of the library."""
    for path in (ROOT / "fcojax").rglob("*.py"):
        if path.name != "__main__.py":
            assert not {"absl", "ml_collections"} & {m.split(".")[0] for m in imports(path)}, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    assert path.stem not in BANNED
    assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"


def test_algorithms_and_the_engine_stay_on_the_device():
    for folder in ("algorithms", "engine"):
        for path in (ROOT / "fcojax" / folder).rglob("*.py"):
            if path.name not in HOST_SIDE:
                assert "numpy" not in set(imports(path)), f"{path} uses numpy"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_are_numbers(path):
    """And the name of their experiment: no functions but the two, and no class."""
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 100
    body = ast.parse(text).body
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert defined == ["get_config", "quick"]
    assert {m.split(".")[0] for m in imports(path)} <= {"experiments", "ml_collections"}


def part(module):
    """The part of ``experiments`` that a module belongs to, or ``None``."""
    parts = module.split(".")
    return parts[1] if parts[0] == "experiments" and len(parts) > 1 else None


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_launcher_imports_one_way(path):
    """Reports know no experiments, experiments no launcher, and the launcher only their types."""
    own = part(".".join(path.relative_to(ROOT).with_suffix("").parts))
    allowed = {"report": {"report"}, "study": {"report"}, "studies": {"report", "study", "studies"}}
    others = {part(module) for module in imports(path)} - {None}
    if own in allowed:
        assert others <= allowed[own]
    else:
        assert "studies" not in others


def test_an_experiment_imports_no_other():
    prefix = "experiments.studies."
    for path in (ROOT / "experiments" / "studies").glob("*/*.py"):
        studies = [module for module in imports(path) if module.startswith(prefix)]
        assert {module.split(".")[2] for module in studies} <= {path.parent.name}, path


def test_the_command_is_imported_by_nobody():
    types_at_it = ROOT / "benchmarks" / "command_lines.py"
    for path in SOURCES:
        assert path == types_at_it or "experiments.run" not in set(imports(path)), path


def test_nothing_is_imported_in_a_circle():
    """Also within a package, where groups say nothing, and also inside functions."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in SOURCES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & modules.keys()
            elif isinstance(node, ast.ImportFrom):
                # A submodule is needed in place of the package that it is taken from.
                for full in (f"{node.module}.{alias.name}" for alias in node.names):
                    graph[name] |= {full if full in modules else node.module} & modules.keys()
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which shows the circle


def test_forbidden_words_do_not_come_back():
    """Words that a reader would not find in a textbook or in JAX's own documentation."""
    found = {}
    for path in TEXTS:
        relative = str(path.relative_to(ROOT))
        words = FORBIDDEN.findall(" ".join(path.read_text("utf-8").split()))
        if words and path.name != "test_house.py":
            found[relative] = sorted(set(words))
    assert not found


def test_rooms_of_the_launcher_form_no_cycle():
    """Files in a folder of ``experiments`` are one room, files beside them a room each."""
    needed = {}
    for path in EXPERIMENTS:
        own = part(".".join(path.relative_to(ROOT).with_suffix("").parts))
        needed.setdefault(own, set()).update(part(module) for module in imports(path))
    left = {room: others - {room, None, "__init__"} for room, others in needed.items()}
    while free := [room for room, others in left.items() if not others & left.keys()]:
        for room in free:
            del left[room]
    assert not left


def test_no_private_jax():
    for path in SOURCES:
        private = [m for m in imports(path) if m.startswith("jax.") and "._" in m]
        assert not private, f"{path} imports {private}"


def test_importing_the_library_starts_no_backend_and_loads_only_what_it_uses():
    # The number of devices can be set only as long as there is no backend.
    check = (
        "import fcojax, jax, sys; jax.config.update('jax_num_cpu_devices', 3); "
        "assert len(jax.devices('cpu')) == 3; "
        "assert not {'flax', 'orbax', 'matplotlib', 'sklearn', 'h5py', 'rich'} & set(sys.modules); "
        "assert fcojax.networks.two_layer and 'flax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)
