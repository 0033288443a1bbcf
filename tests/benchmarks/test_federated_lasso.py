"""The folder for Benchopt: its solvers agree, and its certificates are correct."""

import importlib
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import fcojax
from fcojax.transforms import group_l2, l1

FOLDER = pathlib.Path(__file__).parent.parent.parent / "benchmarks" / "benchmark_federated_lasso"
KINDS = ("lasso", "logistic", "group_lasso")


@pytest.fixture
def parts(monkeypatch):
    """Import its modules as Benchopt does."""
    monkeypatch.syspath_prepend(os.fspath(FOLDER))
    return lambda name: importlib.import_module(f"benchmark_utils.{name}")


def problem_of(parts, kind, fraction=0.2):
    rng = np.random.default_rng(0)
    sites = []
    for size in (20, 30, 50):
        x = rng.normal(size=(size, 8)) + rng.normal(size=8) / 4
        y = x @ (np.arange(8) < 4) + rng.normal(size=size)
        sites.append((x, np.where(y > 0, 1.0, -1.0) if kind == "logistic" else y))
    return parts("problem").made(kind, sites, fraction)


@pytest.mark.parametrize("kind", KINDS)
def test_ours_is_the_one_by_hand(parts, kind):
    problem = problem_of(parts, kind)
    ours = parts("ours").Ours(problem, "fed_dual_avg")
    by_hand = parts("by_hand").FedDualAvg(problem, parts("problem").rate(problem))
    ours.advance(10)
    for _ in range(10):
        by_hand.round()
    np.testing.assert_allclose(ours.model, by_hand.model, rtol=0, atol=1e-13)
    assert 0 < np.count_nonzero(by_hand.model) < 8 and np.abs(by_hand.model).max() > 0.1
    assert (ours.rounds, ours.sent) == (by_hand.rounds, by_hand.sent)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_bounds_the_objective_and_vanishes_at_the_optimum(parts, kind):
    problem, rng = problem_of(parts, kind), np.random.default_rng(1)
    ours = parts("ours").Ours(problem, "composite_fl")
    ours.advance(1000)
    best = problem.certificates(ours.model)
    assert best["gap"] + 1e-14 >= 0 and best["gap"] < 1e-12 and best["kkt"] < 1e-12
    penalty = group_l2(axis=1) if kind == "group_lasso" else l1()
    for size in (0.01, 1.0):
        w = ours.model + size * rng.normal(size=8)
        found = problem.certificates(w)
        assert found["value"] - best["value"] <= found["gap"] and found["kkt"] > 1e-4
        value = penalty.value(w.reshape(ours.start.shape), problem.strength)
        loss = fcojax.problems.problem.population_loss(
            getattr(parts("ours"), "logistic" if kind == "logistic" else "half_square"),
            w.reshape(ours.start.shape),
            ours.data,
        )
        assert found["value"] == pytest.approx(float(loss + value), abs=1e-12)
    # At the largest strength zero is the solution, and just below it is not.
    zero = np.zeros(8)
    assert problem_of(parts, kind, 1.0).certificates(zero)["gap"] == pytest.approx(0, abs=1e-14)
    assert problem_of(parts, kind, 0.99).certificates(zero)["gap"] > 1e-6


def test_flowers_fed_avg_with_thresholding_is_fed_mid_osp(parts):
    pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fcojax[flower]'")
    problem = problem_of(parts, "lasso")
    ours = parts("ours").Ours(problem, "fed_mid_osp")
    flower = parts("strategies").Thresholded(problem, parts("problem").rate(problem), "FedAvg")
    ours.advance(10)
    for _ in range(10):
        flower.round()
    np.testing.assert_allclose(ours.model, flower.model, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_benchopt_draws_its_page(tmp_path):
    pytest.importorskip("benchopt", reason="Benchopt is not installed; pip install benchopt")
    pytest.importorskip("skglm", reason="skglm is not installed; pip install skglm")
    command = [
        sys.executable,
        "-m",
        "benchopt",
        "run",
        os.fspath(FOLDER),
        "-d",
        "made",
        "-n",
        "3",
        "--no-display",
        "--output",
        "tested",
    ]
    environment = os.environ | {"PYTHONPATH": os.fspath(FOLDER.parent.parent)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr, done.stderr
    pages = list((FOLDER / "outputs").glob("*tested*.html"))
    assert pages and "numpy-FedDualAvg" in pages[0].read_text("utf-8")
