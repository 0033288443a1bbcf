"""Code on the pages runs and prints the output in its comments; all public names are on a page."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import check, uploads
from fcojax.algorithms import fed_avg

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
pytestmark = pytest.mark.gate
FOLDERS = ("fcojax", "experiments", "tests", "docs", "benchmarks", "configs")
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "build" not in page.parts]
MODULES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "fcojax").rglob("__init__.py")
    if "__all__" in path.read_text("utf-8")
)


def run(*pages):
    """Run pages in a separate process, with JAX's default precision."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "blocks.py"), *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_runs():
    run(ROOT / "README.md")


@pytest.mark.slow
def test_the_pages_run():
    run(*(page for page in PAGES if page.parent == DOCS and "```python" in page.read_text("utf-8")))


@pytest.mark.slow
def test_the_notebooks_run():
    run(*(DOCS / "notebooks").glob("*.md"))


def test_every_transform_of_uploads_is_in_the_table_of_their_page():
    page = (DOCS / "uploads.md").read_text("utf-8").split("## What may not follow what")[0]
    modules = [fcojax, *(importlib.import_module(name) for name in MODULES)]
    public = {name: getattr(module, name) for module in modules for name in module.__all__}
    transforms = {
        name
        for name, made in public.items()
        if inspect.isroutine(made)
        and inspect.unwrap(made).__annotations__.get("return") is uploads.UploadTransform
    }
    named = {link.rsplit(".", 1)[-1] for link in re.findall(r"\]\(#(fcojax[\w.]+)\)", page)}
    assert transforms - {"chain"} | {"attacked"} == named


def test_every_module_with_public_names_is_on_a_page_of_the_api():
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    shown = re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE)
    assert set(MODULES) <= set(shown)
    for name in shown:
        importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_and_class_has_an_example(name):
    module = importlib.import_module(name)
    without = [
        public
        for public in module.__all__
        if inspect.isroutine(thing := getattr(module, public)) or inspect.isclass(thing)
        if ">>>" not in (inspect.getdoc(thing) or "")
    ]
    assert not without


def test_files_that_pages_name_exist():
    """Names without a folder are in the folder of the previous name in the line, or beside it."""
    missing = []
    for page in [*PAGES, *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]:
        lines = [] if page.name == "CHANGELOG.md" else page.read_text("utf-8").splitlines()
        for line in lines:
            folder = None
            for name in re.findall(r"`([\w./]+(?:\.py|\.md|/))`", line):
                if name.split("/")[0] in FOLDERS:
                    places = [ROOT / name]
                elif folder is None:
                    continue
                else:
                    places = [folder / name, folder.parent / name]
                found = [place for place in places if place.exists()]
                if found:
                    folder = found[0] if found[0].is_dir() else found[0].parent
                elif "NAME" not in name:
                    missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing


def test_the_tour_names_functions_of_these_files_with_some_1500_lines():
    page, total = (DOCS / "source_tour.md").read_text("utf-8"), 0
    for file, names in re.findall(r"^\| `(fcojax/[\w/.]+)` \| (`.*?`) \|", page, re.MULTILINE):
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        for name in re.findall(r"`([\w.]+)`", names):
            node = tree
            for part in name.split("."):
                node = next(x for x in node.body if getattr(x, "name", None) == part)
            total += node.end_lineno - node.lineno + 1
    assert 1300 < total < 1700


def test_pages_for_users_name_what_a_wheel_has():
    """Only a checkout has ``experiments`` on its path; only pages for contributors may name it."""
    contributors = ["CONTRIBUTING", "results"]
    pages = [page for page in [*PAGES, ROOT / "README.md"] if page.stem not in contributors]
    found = [
        f"{page.name}: {line}"
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if re.search(
            r"(from|import|-m) experiments\b|experiments/|(?<!fcojax\.)\bexperiments\.(?!md)\w",
            line,
        )
    ]
    assert not found


def module_at(path):
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def skeleton(name):
    """Import a file of docs/skeletons, as somebody who copied it would."""
    return module_at(DOCS / "skeletons" / f"{name}.py")


def test_versions_of_the_site_are_listed_newest_first(tmp_path):
    for name in ("dev", "0.9.0", "0.10.0", "not_a_site"):
        (tmp_path / name).mkdir()
        if name != "not_a_site":
            (tmp_path / name / "index.html").touch()
    page = module_at(DOCS / "build.py").index(tmp_path)
    assert re.findall('href="(.*?)/index', page) == ["0.10.0", "0.9.0", "dev"]


@pytest.fixture
def permissive():
    """Use JAX's defaults for mixed dtypes and ranks, as users do, unlike the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("permissive")
def test_the_algorithm_skeleton_obeys_the_laws_and_ends_near_the_minimiser():
    subject = check.subject_of(skeleton("algorithm").my_method)
    failed = [name for name, law in check.LAWS.items() if law(subject).holds is False]
    assert not failed
    assert check.limit(subject, num_rounds=1000).word == "neighbourhood"


def test_the_laws_hold_for_the_penalty_skeleton():
    penalty = skeleton("penalty").my_penalty(jnp.array([0.5, 1.0, 2.0]))
    found = check.piece_laws(penalty, np.zeros(3))
    assert not [finding for finding in found.values() if finding.holds is False]


@pytest.mark.usefixtures("permissive")
def test_the_problem_skeleton_is_minimised_with_cohorts_of_the_sampler_skeleton():
    problem = skeleton("problem").my_problem()
    plan = fcojax.Plan(fcojax.local_steps(2), skeleton("sampler").MySampler(2))
    algorithm = fed_avg(problem.loss)
    hparams, start = algorithm.hparams_type(client_lr=0.1), problem.init(None)
    w, history = fcojax.run(
        algorithm, hparams, start, problem.train, jax.random.key(0), plan, num_rounds=30
    )
    assert history["participants"].tolist() == [2] * 30
    assert problem.measures(w)["error"] < 0.8 * problem.measures(start)["error"]


def test_the_figure_skeleton_draws(tmp_path):
    rows = [
        {"algorithm": name, "round": number, "objective": 1.0 / number}
        for name in ("fed_avg", "mine")
        for number in (1, 10, 20)
    ]
    (path,) = skeleton("figure").draw(None, rows, {}, tmp_path)
    assert path.stat().st_size > 0


def test_the_study_skeleton_makes_rows_and_claims():
    study = skeleton("study")
    config = study.get_config()
    study.quick(config)
    rows = list(study.EXPERIMENT.rows(config))
    assert [row["num_steps"] for row in rows] == list(config.num_steps)
    assert [claim.holds for claim in study.EXPERIMENT.claims(config, rows, {})] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experiment", "network", "study"])
def test_skeletons_of_experiments_run_from_another_folder(name, tmp_path):
    shutil.copy(DOCS / "skeletons" / f"{name}.py", tmp_path / "mine.py")
    command = [sys.executable, "-m", "fcojax", "run", "mine.py", "--workdir=out", "--quick"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "index.html").exists()


def test_numbers_of_the_readme_are_those_of_the_library():
    text = (ROOT / "README.md").read_text("utf-8")
    algorithms = [
        name
        for name in fcojax.algorithms.__all__
        if hasattr(getattr(fcojax.algorithms, name), "Hparams")
    ]
    assert f"**{len(algorithms)} algorithms under one contract" in text
    claims = re.search(
        r"Of the (\d+) statements (\d+) hold", (DOCS / "results.md").read_text("utf-8")
    )
    assert f"Of {claims[1]} statements of the sources" in text and f"[{claims[2]} hold]" in text
    transforms = fcojax.transforms
    kinds = [inspect.unwrap(getattr(transforms, name)) for name in transforms.__all__]
    penalties = [
        kind
        for kind in kinds
        if inspect.isfunction(kind)
        and kind.__name__ != "zero"
        and kind.__annotations__.get("return") is transforms.Penalty
        and kind.__module__.split(".")[2] in ("penalties", "constraints")
    ]
    assert f"| proxes of penalties and constraints | {len(penalties)} |" in text
