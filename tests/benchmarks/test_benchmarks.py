"""The benchmarks run, and both sides of each get the same result."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import accelerator, cifar10, first_call, on_device
from benchmarks.workloads import WORKLOADS, needs

ROOT = pathlib.Path(__file__).parent.parent.parent


def json_lines(*arguments):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": os.fspath(ROOT / ".jax_cache")}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_command_prints_both_sides_and_they_agree():
    (row,) = json_lines("benchmarks.rounds", "--workload=toy", "--repeats=1")
    assert row["objective"] == pytest.approx(row["numpy_objective"], rel=1e-5)
    assert {"ms_per_round", "first_run_s", "peak_rss_mb", "ratio"} <= set(row)


@pytest.mark.slow
def test_a_sweep_agrees_with_the_loop_over_its_points():
    (row,) = json_lines("benchmarks.sweep", "--workload=toy", "--repeats=1")
    assert row["largest_difference"] < 1e-4
    assert list(row["ms_per_round"]) == ["1", "4"] and row["ratio_per_point"] > 0


@pytest.mark.slow
def test_scaling_measures_every_size():
    (row,) = json_lines("benchmarks.scaling", "--workload=toy")
    assert row["cohort_size"] == [2, 6] and len(row["beyond_data_mb"]) == 2
    assert min(row["ms_per_round"]) > 0


def test_images_of_the_binary_version_are_planes_of_three_colours(tmp_path):
    record = np.zeros((2, 3073), np.uint8)
    record[:, 0] = [7, 9]
    record[1, 1 + 1024 + 32 * 3 + 5] = 200  # green, fourth row, sixth column
    record.tofile(tmp_path / "test_batch.bin")
    images, labels = cifar10.read(tmp_path, ("test_batch.bin",))
    assert images.shape == (2, 32, 32, 3) and labels.tolist() == [7, 9]
    assert images[1, 3, 5].tolist() == [0, 200, 0] and images.sum() == 200
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 3000)
    with pytest.raises(ValueError, match="which are not records of 3,073; pass the folder"):
        cifar10.read(tmp_path, ("test_batch.bin",))


@pytest.mark.slow
def test_the_cifar_setting_runs_at_a_small_size():
    small = ["--clients=4", "--cohort=2", "--test=40", "--rounds=4", "--eval_every=2"]
    *curve, last = json_lines("benchmarks.cifar10", *small)
    assert [row["round"] for row in curve] == [2, 4] and last["data"].startswith("random images")
    assert last["parameters"] == 1_626_442 and last["cohort"] == 2 and last["ms_per_round"] > 0
    *_, last = json_lines("benchmarks.cifar10", "--setting=blazefl", "--clients=2", *small[1:])
    assert last["parameters"] == 62_006 and last["cohort"] == last["clients"] == 2


@pytest.mark.slow
def test_memory_is_counted_in_populations():
    rows = json_lines("benchmarks.memory", "--megabytes=20", "--operations=from_rows,run,optimum")
    assert [row["operation"] for row in rows] == ["from_rows", "run", "optimum"]
    assert rows[0]["arrays"] == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_transforms_agree_with_the_plain_way():
    rows = json_lines("benchmarks.transforms", "--quick")
    assert len(rows) > 15 and any(row["transform"].startswith("stiefel") for row in rows)
    for row in rows:
        assert row.get("difference", 0.0) < 1e-4, row


def test_a_round_needs_its_products_and_its_rows():
    assert needs(WORKLOADS["W1"]) == (4 * 10 * 10 * 10 * 1024, 4 * 10 * 100 * 1024)
    # Full batches remain in cache between steps, so they are read once.
    assert needs(WORKLOADS["W2"])[1] == 4 * 59 * 18 * 39_912


@pytest.mark.slow
def test_the_accelerators_command_writes_a_table_and_survives_a_stop(tmp_path):
    out = tmp_path / "table.md"
    accelerator.main(["--quick", "--only=peaks,W1", f"--out={out}"])
    rows = json.loads(out.with_suffix(".json").read_text())
    assert not [row for row in rows if "failed" in row and "BF16" not in row["case"]], rows
    (row,) = [row for row in rows if row["section"] == "W1"]
    assert row["objective"] == pytest.approx(row["by_hand_objective"], rel=1e-5)
    assert row["ratio"] == row["ms"] / row["by_hand_ms"] and 0 < row["of_products"] < 1
    assert "| W1 |" in out.read_text() and "### peaks" in out.read_text()
    (stopped,) = accelerator.rows_of("W2", True, 0.0)
    assert stopped == {"section": "W2", "case": "W2", "failed": "stopped after 0 s"}


def test_a_case_that_fails_on_the_device_is_a_row_of_its_own():
    def out_of_memory():
        raise RuntimeError("no room\nfor this")

    assert on_device.attempt("W9", out_of_memory) == {
        "case": "W9",
        "failed": "RuntimeError: no room",
    }
    assert set(on_device.SECTIONS) == set(accelerator.LIMITS)
    shown = accelerator.tables([{"section": "W9", "case": "W9", "failed": "no | room"}])
    assert "| W9 | no / room |" in shown


@pytest.mark.slow
@pytest.mark.parametrize("section", ["sweep", "W5", "W6", "W7", "W8", "precision"])
def test_every_section_of_the_accelerators_command_runs(section):
    rows = json_lines("benchmarks.accelerator", "--quick", f"--section={section}")
    assert rows and not [row for row in rows if "failed" in row], rows
    for row in rows:
        assert row["ms"] > 0, row
        if section in ("W7", "W8"):
            assert row["by_hand_objective"] == pytest.approx(row["objective"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "column"),
    [("calls", "ms"), ("bits", "same_bits"), ("main job", "seconds"), ("published", "seconds")],
)
def test_sections_without_a_round_beside_plain_jax_run(section, column):
    rows = json_lines("benchmarks.accelerator", "--quick", f"--section={section}")
    assert rows and all(row[column] > 0 for row in rows), rows
    if section == "published":
        assert [row["case"] for row in rows] == list(on_device.PUBLISHED)


@pytest.mark.slow
def test_a_first_call_has_its_phases_and_its_tuned_products_counted():
    found = first_call.measure("W4", quick=True)
    assert found.pop("products") == found.pop("different") == 0  # on a CPU nothing is tuned
    assert len(found) == 5 and min(found.values()) > 0
    text = """%gemm_fusion_dot.1_computation (parameter_0: f32[2,3]) -> f32[2] {
%gemm_fusion_dot.2_computation (parameter_0.1: f32[2,3]) -> f32[2] {
  %call = (f32[4]{0}, s8[9]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm"
"""
    assert first_call.tuned_products(text) == (3, 2)
