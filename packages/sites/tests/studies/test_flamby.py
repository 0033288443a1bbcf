import csv
import pathlib

import numpy as np
import pytest

import fcojax_sites
from experiments.study import check
from fcojax.transforms import l2_squared
from fcojax_sites.configs import flamby
from fcojax_sites.studies.flamby import data, published, rows
from fcojax_sites.studies.flamby.scores import accuracy, c_index, scores

COLUMNS = ("age_at_index", "race_white", "race_asian", "tumor_stage_stage i", "never")


def survival_folder(folder: pathlib.Path, num_rows: int = 30) -> pathlib.Path:
    """Write files in the form of FLamby's Fed-TCGA-BRCA, with drawn survival times."""
    rng = np.random.default_rng(0)
    table, split = [], []
    for i in range(6 * num_rows):
        white, asian, stage = rng.integers(0, 2, 3)
        age = int(rng.integers(30, 90))
        hazard = np.exp(0.04 * (age - 60) + 0.8 * white)
        time, end = rng.exponential(1000 / hazard), rng.exponential(1500)
        event = float(time < end)
        shown = max(1.0, round(min(time, end)))
        table.append([f"p{i}", age, white, asian, stage, 0, event, shown])
        part = "test" if i % 5 == 0 else "train"
        split.append([f"p{i}", part, f"{part}_{i % 6}"])
    table.append(["in no fold", 50, 0, 0, 0, 1, 1.0, 3.0])
    below = folder / "flamby" / "datasets" / "fed_tcga_brca"
    below.mkdir(parents=True)
    for name, header, lines in (
        ("brca.csv", ["pid", *COLUMNS, "E", "T"], table),
        ("train_test_split.csv", ["pid", "fold", "fold2"], split),
    ):
        with (below / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *lines])
    return folder


def heart_folder(folder: pathlib.Path) -> pathlib.Path:
    """Write files in UCI's form; the third hospital has a single row without the disease."""
    rng = np.random.default_rng(1)
    for number, name in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        lines = []
        for i in range(40):
            x = rng.normal(size=13).round(2)
            x[1], x[2], x[6] = rng.integers(0, 2), rng.integers(1, 5), rng.integers(0, 3)
            ill = int(x[0] + x[3] + rng.normal() > 0) if number != 2 else int(i > 0)
            cells = [f"{value:g}" for value in x[:10]] + ["?"] * 3 + [str(2 * ill)]
            if i == 5:
                cells[4] = "?"
            lines.append(",".join(cells))
        (folder / f"processed.{name}.data").write_text("\n".join(lines) + "\n")
    return folder


def test_the_c_index_is_that_of_lifelines():
    judge = pytest.importorskip("lifelines.utils").concordance_index
    rng, compared = np.random.default_rng(0), 0
    for _ in range(100):
        num = rng.integers(4, 30)
        time, event = rng.integers(0, 9, num).astype(float), rng.integers(0, 2, num)
        risk = rng.integers(0, 5, num).astype(float)
        [found] = c_index({"time": time, "event": event}, risk, np.ones((1, num)))
        if np.isnan(found):
            continue
        compared += 1
        assert found == pytest.approx(judge(time, -risk, event), abs=1e-12)
    assert compared > 80


def test_a_row_that_is_counted_twice_is_a_row_that_stands_twice():
    rng = np.random.default_rng(1)
    time, event, risk = rng.exponential(size=12), rng.integers(0, 2, 12), rng.normal(size=12)
    counts = rng.integers(0, 3, 12)
    [found] = c_index({"time": time, "event": event}, risk, counts[None].astype(float))
    own = np.repeat(np.arange(12), counts)
    [expected] = c_index(
        {"time": time[own], "event": event[own]}, risk[own], np.ones((1, len(own)))
    )
    # Copies of one row have equal times, and are no pair unless one of them were censored.
    assert found == pytest.approx(expected, abs=1e-12)


def test_intervals_contain_the_score_and_are_drawn_within_silos():
    rng = np.random.default_rng(2)
    test = [{"y": rng.integers(0, 2, 30)} for _ in range(3)]
    predicted = [rows["y"] - 0.5 + rng.normal(scale=0.5, size=30) for rows in test]
    at, drawn = scores(accuracy, test, predicted), scores(accuracy, test, predicted, 500)
    low, high = np.quantile(drawn.mean, [0.025, 0.975])
    assert low < at.mean < high and drawn.silos.shape == (500, 3)


def test_survival_rows_are_those_of_the_split(tmp_path):
    silos = data.fed_tcga_brca(survival_folder(tmp_path))
    assert [len(s["x"]) for s in silos.train] == [24] * 6
    assert [len(s["x"]) for s in silos.test] == [6] * 6
    # The constant column is left out, with the row in no fold; the others have deviation one.
    assert silos.features == list(COLUMNS[:4])
    spread = np.concatenate([s["x"] for s in silos.train]).std(axis=0)
    np.testing.assert_allclose(spread, 1)
    groups = data.penalties(silos)["group lasso"]
    assert float(groups.value(np.array([0.0, 3.0, 4.0, 0.0]), 1.0)) == 5


def test_hospitals_are_split_and_scaled_by_their_own_rows(tmp_path):
    pytest.importorskip("sklearn")
    silos = data.fed_heart_disease(heart_folder(tmp_path))
    # 39 complete rows a hospital, without the one of which a kept column is missing.
    assert [len(s["x"]) for s in silos.train] == [25] * 4
    assert [len(s["x"]) for s in silos.test] == [14] * 4
    assert len(silos.features) == silos.train[0]["x"].shape[1] == 13
    for rows_of in silos.train:
        np.testing.assert_allclose(rows_of["x"].mean(axis=0), 0, atol=1e-12)


def test_an_exact_fit_has_the_coefficients_of_lifelines(tmp_path):
    fitter = pytest.importorskip("lifelines").CoxPHFitter
    pandas = pytest.importorskip("pandas")
    silos, strength = data.fed_tcga_brca(survival_folder(tmp_path, 60)), 0.05
    # No ties, on which lifelines follows Efron and we Breslow.
    for silo in silos.train:
        silo["time"] = silo["time"] + np.linspace(0, 0.4, len(silo["time"]))
    problem = silos.problem()
    # Their ridge has a factor 1/2.
    path = fcojax_sites.path(problem, l2_squared(), strengths=[strength / 2], tolerance=1e-8)
    frames = [
        pandas.DataFrame(silo["x"], columns=silos.features).assign(
            time=silo["time"], event=silo["event"], region=i
        )
        for i, silo in enumerate(silos.train)
    ]
    judge = fitter(penalizer=strength, l1_ratio=0.0)
    judge.fit(pandas.concat(frames), "time", "event", strata=["region"])
    np.testing.assert_allclose(path.models[0], judge.params_.to_numpy(), atol=2e-3)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"has no brca\.csv; pass a checkout"):
        data.fed_tcga_brca(tmp_path)


def test_the_best_published_strategy_is_the_largest_mean():
    for table in published.TABLES.values():
        assert all(0.4 < score < 1 for _, *both in table for score in both)
    assert published.best("fed_heart_disease") == 0.735


@pytest.mark.slow
def test_the_study_has_a_row_for_each_fit_and_claim(tmp_path):
    config = flamby.get_config()
    flamby.quick(config)
    config.data_dir = str(survival_folder(tmp_path))
    config.datasets, config.num_steps = ("fed_tcga_brca",), 5
    check(flamby.EXPERIMENT, config)
    found = list(rows.study(config))
    summary = rows.summarise(config, found)
    assert {row["part"].split(": ")[1] for row in found} == {
        *("exact", "private", "attacked"),
        *(rows.METHODS[name].text for name in config.methods),
    }
    exact = found[0]
    assert exact["low_clients"] <= exact["clients"] <= exact["high_clients"]
    ours = [entry for entry in summary["fed_tcga_brca"] if "from" in entry]
    assert len(ours) == 1 + len(config.methods) * len(config.times)
    assert len(flamby.EXPERIMENT.claims(config, found, summary)) == 6
    last = [row for row in found if row.get("method") == "scaffold"][-1]
    assert last["objective"] >= exact["objective"] - 1e-9
