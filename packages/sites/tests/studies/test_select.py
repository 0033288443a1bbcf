"""A selection from a file: targets, sites and scaling; and a quick run with its figures."""

import re
import subprocess
import sys
import tomllib
import types

import jax
import numpy as np
import pytest

import fcojax
import fcojax_sites
from experiments.cli.console import results
from experiments.config import config_file
from experiments.process import invocation
from experiments.report.rows import plain
from experiments.study import check
from fcojax import problems
from fcojax.__main__ import configs
from fcojax_sites import safetensors
from fcojax_sites.selection import aic
from fcojax_sites.studies.select import EXPERIMENT
from fcojax_sites.studies.select.problem import (
    LOSSES,
    Scaling,
    _assign_sites,
    loaded,
    penalty,
    task,
)
from fcojax_sites.studies.select.rows import (
    Exchanges,
    _coefficients,
    _describe_data,
    _intervals,
    _no_slope,
    _scaling,
    _scaling_of_choice,
    study,
    summarise,
)
from fcojax_sites.studies.select.rows import by_sums as study_by_sums
from fcojax_sites.studies.select.sites import (
    _last_error,
    _tell,
    _written,
    in_process,
    link_to,
    site_file,
)
from tests.studies.quick_studies import quick_study
from tests.studies.select_files import compressed, config_of


@pytest.mark.parametrize("suffix", ["csv", "svm"])
@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "cox"])
def test_targets_are_those_in_the_file(loss, suffix, tmp_path):
    """Numbers and counts are unchanged; of two classes in any coding the larger is 1."""
    numbers = {"class": [-1, 1, 1, -1], "count": [7, 0, 40, 7], "number": [-30.5, 2, 900, 2]}
    target = numbers[LOSSES[loss].target]
    x = [3, 1, 4, 1]
    line = "{1} 1:{0}" if suffix == "svm" else "{0},{1},{2}"
    rows = [line.format(*row) for row in zip(x, target, "aabb", strict=True)]
    header = [] if suffix == "svm" else ["x1,y,site"]
    (tmp_path / f"a.{suffix}").write_text("\n".join([*header, *rows, ""]))
    (tmp_path / "site").write_text("a\na\nb\nb\n")
    config = config_of(data_dir=tmp_path / f"a.{suffix}", loss=loss, positive_above=np.inf)
    rows = task(config).problem.train.examples
    expected = [0, 1, 1, 0] if LOSSES[loss].target == "class" else target
    assert rows["y"].tolist() == expected
    np.testing.assert_allclose(rows["x"][:, 0], (np.array(x) - 2.25) / np.std(x), rtol=1e-6)


def test_a_threshold_is_one_on_the_numbers_of_a_libsvm_file(tmp_path):
    (tmp_path / "a.svm").write_text("3 1:1\n8 1:2\n5 1:3\n7 1:4\n")
    (tmp_path / "site").write_text("the first\nthe first\n#2\n#2\n")
    train = task(config_of(data_dir=tmp_path / "a.svm", positive_above=5)).problem.train
    assert train.ids.tolist() == ["#2", "the first"]
    assert train.examples["y"].tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="positive_above is 5"):
        task(config_of(data_dir=tmp_path / "a.svm", positive_above=5, loss="linear"))


def division_of(**values):
    defaults = {"loss": "logistic", "num_clients": 10, "concentration": 0.5, "data_seed": 0}
    return types.SimpleNamespace(**defaults | values)


def test_rows_without_sites_are_divided_by_class():
    labels = np.repeat([0, 1], [600, 400])
    site = _assign_sites(labels, division_of())
    names = [f"client {index:02}" for index in range(1, 11)]
    assert sorted(set(site)) == names
    assert site.tolist() == _assign_sites(labels, division_of()).tolist()
    assert site.tolist() != _assign_sites(labels, division_of(data_seed=1)).tolist()
    even = _assign_sites(labels, division_of(concentration=1e9))
    shares = [[np.mean(even[labels == label] == name) for name in names] for label in (0, 1)]
    np.testing.assert_allclose(shares, 0.1, atol=1 / 400)
    # With a concentration near zero a class is on few clients.
    few = _assign_sites(labels, division_of(num_clients=3, concentration=0.05))
    assert max(np.mean(few[labels == 1] == f"client {index}") for index in (1, 2, 3)) > 0.7


def test_assigned_clients_have_names_and_weights(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], 200)
    np.savez(tmp_path / "a.npz", y=y, **compressed(rng.integers(2, size=(200, 5))))
    more = {"num_clients": 4, "concentration": 5.0, "data_seed": 0, "positive_above": 0.0}
    config = config_of(data_dir=tmp_path / "a.npz", features="train", client="", **more)
    problem, names, _, filled, unlabelled = task(config)
    train = problem.train
    assert not filled.any() and unlabelled == 0
    assert train.ids.tolist() == [f"client {index}" for index in (1, 2, 3, 4)]
    assert names == [f"x{index}" for index in range(1, 6)] and int(train.sizes.sum()) == 200
    np.testing.assert_allclose(train.weights, train.sizes)
    assert sorted(np.unique(train.examples["y"], return_counts=True)[1]) == sorted(
        np.unique(y, return_counts=True)[1]
    )


def test_missing_values_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text("age,dose,y,site\n1,,0,b\n3,?,1,a\n0,4,1,a\nNA,4,,a\n2,1,0,b\n")
    config = config_of(data_dir=tmp_path / "a.csv", positive_above=np.inf)
    problem, _, scaling, filled, unlabelled = task(config)
    assert filled.tolist() == [0, 2] and unlabelled == 1
    assert scaling.mean.tolist() == [1.5, 2.5]  # over the values present, in rows with a target
    assert int(problem.train.sizes.sum()) == 4
    rows = [
        {"part": "data", "filled": 2, "filled_columns": 1, "columns": 2, "unlabelled": 1},
        {"part": "site", "examples": 4},
    ]
    words = _describe_data(config, rows)
    assert words.endswith(
        "logistic loss. 2 missing values, of 1 of 2 columns, are the feature's mean. 1 rows "
        "without a target were left out."
    )


def test_the_scaling_of_the_chosen_features_is_a_table():
    scaling = Scaling(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 4.0]), "deviation")
    rows = [
        {"part": "coefficient", "name": "bias", "value": 0.3},
        {"part": "coefficient", "name": "dose", "value": 0.0},
        {"part": "coefficient", "name": "age", "value": -1.5},
        *_scaling(scaling, ["weight", "dose", "age"], [1, 2]),
    ]
    assert _scaling_of_choice(rows) == [{"name": "age", "mean": 3.0, "deviation": 4.0}]


def grouped(text, l1_fraction=1.0, group_fraction=1.0, group_penalty="norm", by="site"):
    return types.SimpleNamespace(
        groups=text,
        l1_fraction=l1_fraction,
        group_fraction=group_fraction,
        group_penalty=group_penalty,
        by=by,
    )


def test_groups_of_a_file_and_of_patterns_are_those_of_the_penalty(tmp_path):
    names = ["lab_a", "age", "lab_b", "crp"]
    (tmp_path / "groups.csv").write_text("lab_a,labs\nlab_b,labs\ncrp,labs\nage,who\n")
    model = {"bias": np.ones(()), "kernel": np.array([2.0, 3.0, -1.0, 2.0])}
    (tmp_path / "headed.csv").write_text("Column,group\nlab_a,labs\nlab_b,labs\ncrp,labs\n")
    files = [str(tmp_path / name) for name in ("groups.csv", "headed.csv")]
    for text in (*files, "labs=lab_*|crp", "labs = lab_? | crp, who=age"):
        whole = penalty(grouped(text), names)
        np.testing.assert_allclose(whole.value(model, 1.0), 3 + 3)
        half = penalty(grouped(text, group_fraction=0.5), names)
        np.testing.assert_allclose(half.value(model, 1.0), (8 + 6) / 2)
    np.testing.assert_allclose(penalty(grouped(""), names).value(model, 1.0), 8)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("labs=lab_*|crp,who=crp", "crp is in the groups labs and who; pass groups that do not"),
        ("labs=lib_*", "lib_\\* of group labs matches no column; pass names among"),
    ],
)
def test_groups_that_are_errors(text, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        penalty(grouped(text), ["lab_a", "crp"])
    assert re.search(sentence, invocation.sentence(raised.value))
    with pytest.raises(ValueError, match="elastic net"):
        penalty(grouped("labs=lab_*", l1_fraction=0.5), ["lab_a", "crp"])
    for changes in ({"group_penalty": "slope"}, {"group_fraction": 0.5}):
        with pytest.raises(ValueError, match="groups is empty"):
            penalty(grouped("", **changes), ["lab_a", "crp"])


def test_slope_fused_and_trend_take_the_columns_of_a_group_in_order():
    names = ["age", "lab_a", "lab_b", "lab_c"]
    model = {"bias": np.ones(()), "kernel": np.array([2.0, 3.0, -1.0, 2.0])}
    for kind, fraction, expected in (
        ("slope", 0.0, 6.0),
        ("slope", 1.0, (3 * 3 + 2 * 2 + 1) / 3),
        ("fused", 0.0, 6.0),
        ("fused", 0.5, (6 + 7) / 2),
        ("trend", 1.0, 7.0),
    ):
        found = penalty(grouped("labs=lab_*", group_fraction=fraction, group_penalty=kind), names)
        np.testing.assert_allclose(found.value(model, 1.0), 2 + expected)
        assert found.scale_max is not None
    with pytest.raises(ValueError, match="by is bic"):
        penalty(grouped("labs=lab_*", group_penalty="slope", by="bic"), names)
    with pytest.raises(ValueError, match="group_fraction is 0.5"):
        penalty(grouped("labs=lab_*", group_fraction=0.5, group_penalty="trend"), names)
    with pytest.raises(ValueError, match="group_fraction is 1"):
        penalty(grouped("labs=lab_*", group_penalty="fused"), names)
    with pytest.raises(ValueError, match="2 columns"):
        penalty(grouped("labs=lab_a|lab_b", group_penalty="trend"), names)


@pytest.mark.slow
def test_coefficients_have_intervals_where_the_loss_is_a_likelihood():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    rows = {"x": x, "y": x[:, 0] + 0.5 * rng.normal(size=60)}
    problem = problems.linear(fcojax.from_rows(rows, [30, 30], weights="examples"))
    found = fcojax_sites.select(
        problem, penalty(grouped(""), ["a", "b", "c"]), by=aic(), strengths=4
    )
    config = types.SimpleNamespace(loss="linear")
    of, said = _intervals(config, problem, found)
    assert said.startswith("debiased") and [e.part for e in of.ledger.entries] == ["moments"]
    bias, first, *_ = _coefficients(found, of, ["a", "b", "c"], np.array([0]))
    assert bias["name"] == "bias" and first["low"] < 1 < first["high"]
    least = np.linalg.lstsq(np.c_[x, np.ones(60)], rows["y"])[0]
    assert (first["low"] + first["high"]) / 2 == pytest.approx(least[0], abs=1e-6)
    assert _intervals(types.SimpleNamespace(loss="huber"), problem, found)[0] is None
    twice = problems.linear(fcojax.from_rows(rows | {"x": x[:, [0, 1, 1]]}, [30, 30]))
    assert "is singular" in _intervals(config, twice, found)[1]


@pytest.mark.slow
def test_a_quick_study_has_a_model_a_ledger_and_figures(tmp_path):
    study, config, rows, summary = quick_study("select", tmp_path)
    assert summary["solved"]["strengths solved"] == config.num_strengths
    names = {row["name"] for row in summary["coefficients of the scaled features"]}
    assert names & {f"x{index}" for index in range(1, 31, 5)}
    assert {row["name"] for row in summary["scaling"]} == names - {"bias"}
    left_out = summary["chosen"]["left out"].split(", ")
    assert len(left_out) == 30 - summary["chosen"]["coefficients that are not zero"]
    assert not names & set(left_out)
    printed = "\n".join(results(summary, tmp_path, study.printed))
    assert all(what in printed for what in (*summary["chosen"], *names)), printed
    assert summary["data"] == "drawn: 345 examples of 5 sites, logistic loss."
    judged = [row["loss when left out"] for row in summary["sites"]]
    assert np.mean(judged) == pytest.approx(summary["chosen"]["loss"])
    kept = summary["chosen"]["coefficients that are not zero"]
    assert summary["verdict"].startswith(
        f"The choice has {kept} of 30 features, and a loss on held"
    )
    assert summary["solved"]["intervals"].startswith("debiased")
    effects = [row for row in summary["coefficients of the scaled features"] if "from" in row]
    assert len(effects) == len(names - {"bias"})
    assert all(0 < row["from"] < row["odds ratio, debiased"] < row["to"] for row in effects)
    total = summary["ledger"][-1]
    assert total["bytes up"] == sum(row["bytes up"] for row in summary["sites"])
    drawn = study.figures(config, rows, summary, tmp_path)
    assert {path.stem for path in drawn} == {"path", "coefficients", "sites"}


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (1, " For the lowest, with 2, pass --config.one_standard_error=False."),
        (
            0,
            " No other strength has a lower loss; to have the first three anyway, pass "
            "--config.nonzeros=3.",
        ),
    ],
)
def test_an_empty_choice_says_what_to_type(best, said):
    choice = {"by": "loss on held-out data", "verdict": "solved", "violation": 0.0, "rounds": 1}
    rows = [
        {"part": "path", "index": place, "strength": strength, "nonzero": 2 * place}
        | {"best": place == best, "chosen": place == 0, "score": 3.0 - place, "error": 1.0}
        | choice
        for place, strength in enumerate((4.0, 1.0))
    ]
    rows += [{"part": "data", "features": 5, "filled": 0, "unlabelled": 0}]
    rows += [{"part": "site", "site": "Ghent", "examples": 9}, {"part": "intervals", "verdict": ""}]
    rows += [{"part": "refit", "verdict": "solved"}]
    rows += [{"part": "ledger", "work": "path", "site": "Ghent", "down": 1.0, "up": 1.0}]
    config = types.SimpleNamespace(data_dir="", loss="linear", client="site", nonzeros=0)
    verdict = summarise(config, rows)["verdict"]
    assert verdict.startswith("The choice has 0 of 5 features, and a loss on held-out data of 3")
    assert verdict.endswith(said)


def partial_likelihood(x, time, event, site):
    """Return the mean loss and its gradient, by risk sets of each site."""

    def of(kernel):
        gradient = np.zeros(x.shape[1])
        for i in np.flatnonzero(event):
            at_risk = (site == site[i]) & (time >= time[i])
            risk = np.exp(x[at_risk] @ kernel)
            gradient += risk @ x[at_risk] / risk.sum() - x[i]
        return gradient / len(time)

    return of


def test_cox_of_a_file_has_the_pooled_stratified_partial_likelihood(tmp_path):
    rng = np.random.default_rng(0)
    x, site = rng.standard_normal((60, 4)), np.repeat(["a", "b", "c"], 20)
    time = np.round(rng.exponential(np.exp(-x[:, 0])) + 0.1, 1)  # with ties
    event = (rng.random(60) < 0.7).astype(int)
    rows = [
        [*map(repr, map(float, row)), *rest]
        for row, *rest in zip(x, time, event, site, strict=True)
    ]
    lines = ["a,b,c,d,months,died,site", *(",".join(map(str, row)) for row in rows)]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(lines))
    names = {"time": "months", "event": "died", "positive_above": np.inf}
    config = config_of(data_dir=file, loss="cox", **names)
    found = task(config)
    assert found.names == ["a", "b", "c", "d"]
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    gradient = partial_likelihood(scaled, time, event, site)

    def loss(kernel):
        params = {**found.problem.init(jax.random.key(0)), "kernel": kernel}
        return problems.population_loss(found.problem.loss, params, found.problem.train)

    slope = jax.jit(jax.grad(loss))
    for kernel in rng.standard_normal((3, 4)):
        np.testing.assert_allclose(slope(kernel), gradient(kernel), rtol=1e-5, atol=1e-6)
    file.write_text("\n".join([*lines, "1,1,1,1,2.5,,c"]))
    assert task(config).unlabelled == 1 and int(task(config).problem.train.sizes.sum()) == 60
    for column, cell, message in (
        (4, "-1", "months is -1 in a row; pass times of at least 0"),
        (5, "2", "died is 2 in a row; write 1 for an event"),
    ):
        wrong = lines[1].split(",")
        wrong[column] = cell
        file.write_text("\n".join([lines[0], ",".join(wrong), *lines[2:]]))
        with pytest.raises(ValueError, match=message):
            task(config)


def test_a_table_is_drawn_with_the_columns_of_the_study_to_come():
    made = {"loss": "cox", "features": "age,ward", "categories": "ward=surgery|icu|medicine"}
    made |= {"time": "days", "event": "died", "sizes": (40, 30), "dim": 9, "data_seed": 0}
    found = task(config_of(data_dir="", positive_above=np.inf, missing="-999", **made))
    assert found.names == ["age", "ward: icu", "ward: medicine"]
    assert len(np.unique(np.asarray(found.problem.train.examples["x"])[:, 1:], axis=0)) == 3
    with pytest.raises(ValueError, match="missing applies to a file, and there is none"):
        task(config_of(data_dir="", positive_above=np.inf, missing="-999"))
    years = loaded(config_of(data_dir="", positive_above=np.inf, units="age=10", **made))
    one = loaded(config_of(data_dir="", positive_above=np.inf, **made))
    np.testing.assert_allclose(years.x, one.x * [10, 1, 1])
    np.testing.assert_array_equal(years.y, one.y)


def test_a_superlink_is_reached_with_the_certificate_of_its_authority(tmp_path):
    config = config_file.load(str(configs()["select"])).get_config()
    config.superlink = "127.0.0.1:8000"
    assert "insecure = true" in link_to(config.superlink, config)
    config.root_certificates = str(tmp_path / "ca.crt")
    with pytest.raises(ValueError, match="ca.crt is no file; name that of the authority"):
        link_to(config.superlink, config)
    (tmp_path / "ca.crt").write_text("")
    link = tomllib.loads(link_to(config.superlink, config))["superlink"]["study"]
    assert link["insecure"] is False and link["root-certificates"] == config.root_certificates


def test_the_end_of_a_run_is_told_in_words_of_flower_without_its_frame(tmp_path):
    (tmp_path / "0 flower-superlink.log").write_text("INFO start\nERROR a port\n")
    assert _last_error(tmp_path) == "ERROR a port"
    (tmp_path / "2 flwr.log").write_text(
        "WARNING:fcojax_sites.flower:site Bern: it is late\nnode 7: it failed\nBadAnswer: no\n"
        "ValueError: 2 of 3 sites\n\x1b[91mERROR\x1b[0m: Exit Code: 201\n"
    )
    assert (
        _last_error(tmp_path) == "ValueError: 2 of 3 sites site Bern: it is late node 7: it failed"
    )
    (tmp_path / "1 flower-supernode.log").write_text("TypeError: a cell\nValueError: rows\n")
    assert _last_error(tmp_path).endswith("it failed TypeError: a cell")
    for log in tmp_path.glob("*.log"):
        log.unlink()
    frame = "Using study\n╭─ Error ───╮\n│ Connection to it   │\n│ is unavailable. │\n╰───────╯\n"
    (tmp_path / "1 flwr.log").write_text(frame, "utf-8")
    assert _last_error(tmp_path) == "Connection to it is unavailable."


def test_processes_of_flower_find_both_packages_of_a_checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment = _written(tmp_path, {})
    code = (
        "import importlib.util as of; print(of.find_spec('fcojax'), of.find_spec('fcojax_sites'))"
    )
    command = [sys.executable, "-S", "-c", code]  # without the packages that are installed
    found = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    assert "name='fcojax'" in found and "name='fcojax_sites'" in found


def by_sums(tmp_path, **more):
    """Return the rows and the summary of a study of three files, from sums."""
    rng, folder = np.random.default_rng(0), tmp_path / "sites"
    folder.mkdir(exist_ok=True)
    for place, name in enumerate(("Antwerp", "Bern", "Cork")):
        age, dose = 60 + 10 * rng.standard_normal(40), rng.standard_normal(40)
        ward = rng.choice(["surgery", "icu", "medicine", ""], 40, p=[0.3, 0.3, 0.3, 0.1])
        died = rng.random(40) < 1 / (1 + np.exp(-(age - 60 + place) / 10))
        cells = zip(age, np.where(dose > 1.5, np.nan, dose), ward, died, strict=True)
        lines = [f"{a:.3f},{'' if b != b else f'{b:.3f}'},{c},{d:d}" for a, b, c, d in cells]
        lines += ["50,1,icu,"] * place  # without the outcome
        (folder / f"{name}.csv").write_text("\n".join(["age,dose,ward,died", *lines]))
    config = config_file.load(str(configs()["select"])).get_config()
    given = {"data_dir": str(folder), "client": "", "target": "died", "method": "sums"}
    given |= {"categories": "ward=surgery|icu|medicine", "units": "age=10", "num_strengths": 4}
    config.update(given | {"tolerance": 1e-9} | more)
    check(EXPERIMENT, config)
    rows = [plain(row) for row in study(config)]
    return config, rows, summarise(config, rows)


@pytest.mark.slow
@pytest.mark.gate
def test_a_study_from_sums_has_the_models_of_the_simulation_and_says_on_whom(tmp_path):
    config, rows, summary = by_sums(tmp_path)
    assert summary["data"].startswith("sites: 120 examples of 3 sites, logistic loss.")
    assert "3 rows without a target were left out" in summary["data"]
    assert [row["no outcome"] for row in summary["sites"]] == [0, 1, 2]
    assert all(0.5 < row["in order"] <= 1 for row in summary["sites"])
    _, age, *_ = summary["coefficients of the scaled features"]  # after the bias
    deviation = [row for row in rows if row["part"] == "column"][0]["deviation"]
    coefficient = [row for row in rows if row.get("name") == "age" and "refit" in row][0]
    assert age["per"] == 10 and age["from"] < age["odds ratio, no penalty"] < age["to"]
    assert np.log(age["odds ratio, no penalty"]) * deviation / 10 == pytest.approx(
        (coefficient["low"] + coefficient["high"]) / 2
    )
    dose, icu, medicine = summary["missing values, which become the mean"]
    assert dose["name"] == "dose" and icu["Antwerp"] == medicine["Antwerp"] > 0
    empty = {}  # a missing word is one value, though each level has it
    for file in (tmp_path / "sites").glob("*.csv"):
        cells = [line.split(",") for line in file.read_text().splitlines()]
        empty[file.stem] = sum(row[:3].count("") for row in cells if row[3])
    assert {row["site"]: row["missing"] for row in summary["sites"]} == empty
    assert f"{sum(empty.values())} missing values, of 2 of 3 columns" in summary["data"]
    assert len({row["sha256"] for row in summary["sites"]}) == 3
    drawn = EXPERIMENT.figures(config, rows, summary, tmp_path)
    assert [path.stem for path in drawn] == ["choice", "effects"]


@pytest.mark.slow
@pytest.mark.parametrize("dead", ["surgery", "icu"])
@pytest.mark.parametrize("tolerance", [1e-5, 1e-9])
def test_a_ward_without_a_death_has_the_reason_in_place_of_a_ratio(dead, tolerance, tmp_path):
    """Before, ratios of 425 to 702 with ends of 1e-73 and 1e78 stood for a reference like it."""
    rng, alive = np.random.default_rng(3), 0
    for name in ("Antwerp", "Bern", "Cork"):
        ward = rng.choice(["surgery", "medicine", "icu"], 60, p=[0.2, 0.6, 0.2])
        age, days = rng.normal(60, 10, 60), rng.exponential(300, 60)
        died, alive = (rng.random(60) < 0.5) & (ward != dead), alive + np.sum(ward == dead)
        cells = zip(age, ward, days, died, strict=True)
        lines = ["age,ward,days,died", *(f"{a:.1f},{w},{t:.0f},{d:d}" for a, w, t, d in cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    config = config_file.load(str(configs()["select"])).get_config()
    config.update({"data_dir": str(tmp_path), "client": "", "method": "sums", "loss": "cox"})
    config.update({"time": "days", "event": "died", "categories": "ward=surgery|medicine|icu"})
    config.update({"num_strengths": 3, "least": 0.3, "tolerance": tolerance})
    rows = [plain(row) for row in study(config)]
    table = summarise(config, rows)["coefficients of the scaled features"]
    found = {
        row["name"]: (row.get("hazard ratio, no penalty"), row["why it has none"]) for row in table
    }
    assert found["age"][0] == pytest.approx(1, abs=0.1)
    words = f"none of the {alive} rows of the reference has an event"
    if dead == "icu":
        words = f"none of its {alive} rows has an event"
        assert found["ward: medicine"][0] == pytest.approx(1, abs=1)
    assert found["ward: icu"] == (None, words)


@pytest.mark.slow
def test_a_study_goes_on_without_a_site_whose_sums_cannot_be_and_says_so(tmp_path):
    config, _, _ = by_sums(tmp_path)
    federation, transport, names = in_process(config)

    def negated(messages):
        found = transport.exchange(messages)
        if "Bern" in found:
            sums, facts = safetensors.loads(found["Bern"])
            found["Bern"] = safetensors.dumps({name: -one for name, one in sums.items()}, facts)
        return found

    def study_of(transport):
        return [plain(row) for row in study_by_sums(config, federation, transport, names)]

    found = study_of(transport._replace(exchange=negated))
    (tmp_path / "sites" / "Bern.csv").unlink()
    wanted = [plain(row) for row in study(config)]
    strengths = ([row["strength"] for row in of if row["part"] == "path"] for of in (found, wanted))
    assert next(strengths) == pytest.approx(next(strengths))
    assert [row["site"] for row in found if row["part"] == "site"] == ["Antwerp", "Cork"]
    assert (
        "Site Bern: its answer does not count: a sum, rows, is -40"
        in summarise(config, found)["verdict"]
    )


@pytest.mark.slow
def test_a_study_from_sums_is_that_of_rounds(tmp_path):
    config, rows, summary = by_sums(tmp_path)
    found = fcojax_sites.select(
        task(config).problem,
        penalty(config, task(config).names),
        strengths=4,
        tolerance=1e-9,
        key=jax.random.key(0),
    )
    path = [row for row in rows if row["part"] == "path"]
    shown = np.flatnonzero(np.any(np.asarray(found.path.models["kernel"]) != 0, axis=0))
    for place, row in enumerate(path):
        assert row["strength"] == pytest.approx(float(found.path.strengths[place]), rel=1e-6)
        wanted = np.asarray(found.path.models["kernel"])[place, shown]
        np.testing.assert_allclose(row["kernel"], wanted, atol=1e-6)
    assert [row["chosen"] for row in path].index(True) == found.chosen


def test_a_site_answers_for_no_fewer_patients_than_its_node_config_says(tmp_path):
    file = tmp_path / "Bern.csv"
    file.write_text("age,died\n" + "50,1\n61,0\n" * 9 + "70,\n" * 5)
    config = config_of(data_dir=file, target="died", client="", positive_above=np.inf)
    with pytest.raises(
        ValueError, match="18 patients have an outcome, and this site answers for 2"
    ):
        site_file({"file": str(file)}, config)
    assert len(site_file({"file": str(file), "least_patients": 18}, config)["y"]) == 18


def test_what_sites_cannot_answer_is_refused_in_a_sentence(tmp_path):
    for more, sentence in (
        ({"loss": "huber"}, "loss is huber, which sites do not sum; pass linear, logistic"),
        ({"codec": "top_k:0.1"}, "sums are not compressed; pass --config.method=rounds"),
        ({"units": "weight=10"}, "units has 'weight=10'; write FEATURE=NUMBER"),
        ({"superlink": "here", "method": "rounds"}, "a path of rounds over sites takes hours"),
        ({"superlink": "127.0.0.1:1"}, "features is empty; name the columns"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            by_sums(tmp_path, **more)


@pytest.mark.slow
def test_supernodes_on_this_machine_give_the_model_and_the_bytes_of_one_process(tmp_path, capsys):
    pytest.importorskip("flwr", reason="SuperNodes are Flower's")
    _, here, _ = by_sums(tmp_path, num_strengths=2)
    capsys.readouterr()
    _, there, _ = by_sums(tmp_path, num_strengths=2, superlink="here")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [str(1 + at) for at in range(len(lines))]
    assert "exchange 1 of about 27: statistics; about " in lines[0] and "last" in lines[-1]
    for part, columns in (
        ("path", ("kernel", "score", "strength")),
        ("estimate", ("value", "low", "high")),
        ("judged", ("concordance", "slope")),
        ("site", ("sha256", "examples")),
        ("ledger", ("up", "down")),
    ):
        both = [[row for row in rows if row["part"] == part] for rows in (here, there)]
        for one, other in zip(*both, strict=True):
            for name in columns:
                want = one[name]
                if not isinstance(want, str):
                    want = pytest.approx(want, rel=1e-6, abs=1e-6)
                assert other[name] == want, (part, name)


def test_a_dash_of_a_site_has_its_reason():
    some = {"slope": None, "pairs": 0.0, "tied": 0.0}
    assert _no_slope(some) == "no two rows whose outcomes have an order"
    assert "has no feature" in _no_slope(some | {"pairs": 9.0, "tied": 9.0})
    assert "separates" in _no_slope(some | {"pairs": 9.0})
    assert not _no_slope(some | {"pairs": 9.0, "slope": 1.0})


def test_every_exchange_has_a_line_with_the_minutes_that_are_left():
    told, now = [], iter(np.arange(0, 1e4, 30))
    tell = Exchanges(types.SimpleNamespace(loss="cox", nonzeros=0), told.append, lambda: next(now))
    for part in ("statistics", "statistics", "survival", "start", *["path"] * 12, "judged"):
        tell(part)
    assert told[0] == "exchange 1 of about 27: statistics; about 13 min left"
    assert told[4] == "exchange 5 of about 27: path; about 11 min left"
    assert told[15] == "exchange 16 of about 30: path; about 7 min left"  # it took three more
    assert told[16] == "exchange 17 of about 17: judged; it is the last"
    tell = Exchanges(types.SimpleNamespace(loss="linear", nonzeros=5), told.append)
    tell("search")
    assert told[-1] == "exchange 1: search"


def test_lines_that_a_server_writes_are_printed_once(tmp_path, capsys):
    assert _tell(tmp_path / "a", 0) == 0
    (tmp_path / "a").write_text("one\ntwo\nth")
    assert _tell(tmp_path / "a", 0) == 2
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    assert _tell(tmp_path / "a", 2) == 3
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
