"""A table of one's own: what it may be, what is refused, and what is measured on held-out rows."""

import re
import shlex
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import config_file
from experiments.config.settings import resolve
from experiments.execution.sweep_runner import SweepRunner
from experiments.studies import table
from experiments.studies.table.files import read
from fcojax import __main__ as command
from fcojax.reference import optimum


@pytest.fixture
def config(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal((60.0, 1.0), (10.0, 0.3), (90, 2))
    died = rng.random(90) < 1 / (1 + np.exp(-(x[:, 0] - 60) / 5))
    lines = [
        f"{a},{b},{'ABC'[i % 3]},{d:d}" for i, ((a, b), d) in enumerate(zip(x, died, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["age,dose,hospital,died", *lines]))
    made = config_file.load(str(command.configs()["table"])).get_config()
    made.update(data=str(tmp_path / "t.csv"), target="died", client="hospital")
    return made


def write(config, text, **keys):
    """Write another table and set keys; return the config."""
    with open(config.data, "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
    config.update(**keys)
    return config


def test_a_table_is_read_by_client_with_features_scaled(config):
    config.held_out = 0.0
    train = table.problem(config).train
    assert train.num_clients == 3 and train.examples["x"].shape == (90, 2)
    np.testing.assert_allclose(np.mean(train.examples["x"], axis=0), 0, atol=1e-6)
    assert table.problem(config).validation is None


def test_just_below_the_largest_strength_a_feature_is_selected_and_at_it_none(config):
    config.strength = (0.95, 1.0)
    with jax.enable_x64(False):  # as in a run
        problem = table.problem(config)
        below, at = (
            optimum(problem, table.penalty(config), strength, tolerance=1e-4).params["kernel"]
            for strength in table.strengths(config)
        )
    assert np.count_nonzero(below) == 1 and np.count_nonzero(np.abs(at) > 1e-3) == 0


def test_a_file_of_data_runs_the_config_for_tables(config, capsys):
    found = command._with_config([config.data, "--config.target=died"])
    expected = f"--config={command.configs()['table']}", f"--config.data={config.data}"
    assert found == [*expected, "--config.target=died"]
    with pytest.raises(SystemExit):
        command._with_config(["missing.csv"])
    assert "there is no file missing.csv" in capsys.readouterr().err


def test_a_loss_that_there_is_not_is_refused_before_the_strengths_need_it(config):
    config.loss = "logistik"
    with pytest.raises(ValueError, match="loss is 'logistik'; pass one of 'linear', 'logistic'"):
        resolve(config, table.EXPERIMENT)


@pytest.mark.parametrize("loss", sorted(table.LOSSES))
def test_a_share_of_every_clients_rows_is_held_out_and_measured(config, loss):
    if loss in ("linear", "huber", "median"):
        config.update(target="age", drop=("died",))
    config.loss = loss
    problem = table.problem(config)
    rows = problem.validation.examples
    assert problem.train.sizes.tolist() == [24] * 3 and problem.validation.sizes.tolist() == [6] * 3
    assert "18 of 90 rows are held out." in table.remarks(config)
    np.testing.assert_allclose(np.mean(problem.train.examples["x"], axis=0), 0, atol=1e-6)
    kernel = 0.3 * jnp.ones(rows["x"].shape[1])
    z, y = np.array(rows["x"] @ kernel + 0.1), np.array(rows["y"])
    found = problem.measures({"kernel": kernel, "bias": jnp.array(0.1)})
    if table.LOSSES[loss][1] == "class":
        assert found["accuracy"] == pytest.approx(np.mean((z > 0) == y))
    else:
        z = np.exp(z) if loss == "poisson" else z
        expected = 1 - np.sum((z - y) ** 2) / np.sum((y - y.mean()) ** 2)
        assert found["r2"] == pytest.approx(expected, rel=1e-4)


def test_what_is_said_of_a_table_is_on_the_page_and_in_the_terminal(config):
    config.update(algorithms=("fed_mid",), client_lr=(0.1,), server_lr=(1.0,))
    with jax.enable_x64(False):  # as in a run
        given = SweepRunner(table.EXPERIMENT, config)
    assert given.data.endswith(f"read from {config.data}; runs with seeds 0.")
    assert given.remarks == table.remarks(config)


def test_a_client_of_one_row_keeps_it_for_training(config):
    write(config, "age,hospital,died\n1,A,0\n2,B,1\n3,C,0\n4,C,1\n", held_out=0.9)
    assert table.problem(config).train.sizes.tolist() == [1, 1, 1]
    assert table.problem(config).validation.ids.tolist() == ["C"]
    write(config, "age,hospital,died\n1,A,0\n2,B,1\n")
    assert table.problem(config).validation is None


def test_without_a_file_clients_are_drawn_and_keys_of_files_are_refused(config):
    config.update(data="", held_out=0.0)
    train = table.problem(config).train
    assert train.sizes.tolist() == list(config.sizes) and train.examples["x"].shape[1] == 30
    config.drop = ("age",)
    with pytest.raises(ValueError, match="drop applies to a file, and there is none"):
        table.problem(config)


def test_rows_without_clients_are_divided_by_class(config):
    config.update(client="", drop=("hospital",), num_clients=4)
    assert table.problem(config).train.num_clients == 4
    for keys, said in (
        ({"num_clients": 91}, "91 clients with at least 1 each need 91 examples but there"),
        ({"num_clients": 4, "loss": "linear"}, "client is empty, which divides rows by their"),
    ):
        config.update(**keys)
        with pytest.raises(ValueError, match=said):
            table.problem(config)


WORDS = "patient,age,ward,dose,hospital,died\n" + "".join(
    f"P{i},{50 + i / 3:.2f},{ward},{'unknown' if i == 4 else i / 7},{'AB'[i % 2]},{died}\n"
    for i, (ward, died) in enumerate(
        zip(["icu", "surgery", "", "icu"] * 3, ["no", "no", "yes", "yes"] * 3, strict=True)
    )
)


def test_all_columns_that_are_not_numbers_are_one_sentence_that_can_be_pasted(config):
    with pytest.raises(ValueError) as raised:
        read(write(config, WORDS))
    said = str(raised.value)
    assert said.startswith(
        "t.csv has 4 columns that are not numbers: died ('no' in line 2), patient ('P0' in line "
        "2), ward ('icu' in line 2), dose ('unknown' in line 6); pass --config.drop=patient,dose "
    )
    pasted = [word.split("=", 1) for word in shlex.split(said) if word.startswith("--config.")]
    keys = {key.removeprefix("--config."): value.rstrip(",.") for key, value in pasted[:2]}
    found = read(write(config, WORDS, drop=(keys["drop"],), categories=keys["categories"]))
    assert found.names == ["age", "ward", "ward"] and found.y.tolist() == [0, 0, 1, 1] * 3
    np.testing.assert_array_equal(found.x[:4, 1:], [[0, 0], [1, 0], [0, 1], [0, 0]])
    assert "if 'unknown' stands for a missing value, --config.missing=unknown." in said


def test_words_become_categories_and_ids_are_left_out_by_name(config):
    found = read(write(config, WORDS, categories="auto", missing="unknown"))
    assert found.names == ["age", "ward", "ward", "dose"] and found.y.tolist() == [0, 0, 1, 1] * 3
    np.testing.assert_array_equal(found.x[:4, 1:3], [[0, 0], [1, 0], [0, 1], [0, 0]])
    assert found.remarks[:2] == [
        "died is 1 for yes and 0 for no.",
        "Left out: patient (12 different texts); --config.features or --config.categories keeps a "
        "column.",
    ]
    config.features = "patient,age"
    with pytest.raises(ValueError, match=r"patient .'P0' in line 2.; pass --config.drop=patient."):
        read(config)
    config.drop = ("patient",)
    assert read(config).names == ["age"]
    config.update(features="", drop=())
    # A text among numbers is no level.
    config.missing = ""
    with pytest.raises(ValueError, match=r"1 column that is not numbers: dose .'unknown' in line"):
        read(config)


@pytest.mark.parametrize(
    ("name", "numbers", "left"),
    [
        ("row", range(7, 19), True),
        ("patient_id", [5] * 12, True),
        ("Unnamed: 0", [*range(6)] * 2, True),
        ("year", [*range(2000, 2011), 2000], False),
        ("paid", [*range(11), 50], False),
        ("ID", np.arange(12) / 4, False),
    ],
)
def test_numbers_that_count_rows_or_are_named_as_ids_are_no_feature(config, name, numbers, left):
    lines = [f"{n},{n % 5},{'AB'[i % 2]},{i % 2}" for i, n in enumerate(numbers)]
    write(config, "\n".join([f"{name},age,hospital,died", *lines]))
    found = read(config)
    assert found.names == (["age"] if left else [name, "age"])
    assert (f"{name} (an id)" in " ".join(found.remarks)) is left
    config.features = f"{name},age"
    assert read(config).names == [name, "age"]


def test_missing_values_are_means_and_rows_without_a_target_are_left_out(config):
    text = "age,dose,hospital,died\n1,NA,A,0\n-999.0,2,B,1\n3,?,A,\n5,4,B,0\n7,4,A,1\n,,\n"
    write(config, text.removesuffix(",,\n"), missing="-999", held_out=0.0)
    found = read(config)
    np.testing.assert_array_equal(found.x, [[1, np.nan], [np.nan, 2], [5, 4], [7, 4]])
    x = table.problem(config).train.examples["x"]
    assert x[0, 1] == 0 and x[2, 0] == 0
    assert table.remarks(config).startswith("1 rows without died are left out. 2 missing values")
    assert table.remarks(config).endswith(
        "The coefficients in models/*.npz are, in order: age, dose."
    )


def test_the_model_has_the_entries_that_are_named(config):
    rows = [f"{'xyz'[i % 3]},{i / 4},{'AB'[i % 2]},{i // 3 % 2}" for i in range(12)]
    write(config, "ward,dose,hospital,died\n" + "\n".join(rows), categories="auto")
    x = table.problem(config).train.examples["x"]
    assert x.shape[1] == 3  # two indicators beside the reference, and the dose
    assert table.remarks(config).endswith("in order: ward (2 levels), dose.")


def test_invisible_letters_and_forms_of_a_name_are_one_client(config):
    names = "Z\u00fcrich,0", "Zu\u0308rich\u200b,1", "Z\u00fc\ufeffrich,1"
    rows = [f"{row},{name}" for row, name in enumerate(names)]
    found = read(write(config, "\n".join(["\ufeffage,hos\u00adpital,died", *rows])))
    assert set(found.client) == {"Z\u00fcrich"}


def test_long_ids_of_clients_are_not_rounded(config):
    ids = "12345678901234567890", "12345678901234567891"
    write(config, "\n".join(["age,hospital,died", *(f"{i},{c},{i}" for i, c in enumerate(ids))]))
    assert read(config).client.tolist() == [*ids]


GOOD = "age,hospital,died\n1,A,0\n2,B,1\n4,A,1\n"


@pytest.mark.parametrize(
    ("text", "keys", "said"),
    [
        ("", {}, "has no rows"),
        ("age,hospital,died\n", {}, "has no rows"),
        ("age;hospital;died\n1;A;0\n", {}, "has one column, 'age;hospital;died'"),
        (GOOD + "3,A\n", {}, "t.csv, line 5: has 2 cells where the header has 3."),
        (GOOD + '3,A,"0\n', {}, "line 5: .*is there an open quote"),
        (GOOD + "3,A\0,1\n", {}, "t.csv, line 5: has bytes that are no text in UTF-8"),
        (GOOD.encode() + b"3,\xe4,1\n", {}, "t.csv, line 5: has bytes that are no text in UTF-8"),
        (GOOD.encode("utf-16"), {}, "line 1: has bytes that are no text"),
        (GOOD.replace("age", "died"), {}, "has 2 columns 'died'; rename one"),
        (GOOD, {"client": "hospitl"}, "no column 'hospitl' for --config.client; did you mean hosp"),
        (GOOD, {"drop": ("weight",)}, "no column 'weight' for --config.drop; it has age, hospital"),
        (GOOD, {"features": "age,died"}, "target and features both name died"),
        (GOOD, {"target": "hospital"}, "target and client both name hospital"),
        (GOOD, {"drop": ("age",)}, "no column of t.csv is left as a feature"),
        (GOOD, {"categories": "age=1"}, "categories has 'age=1'; write auto, or NAME="),
        (GOOD, {"categories": "age=1|2"}, "line 4: age is '4', which is not a level; add it to"),
        (GOOD, {"categories": "ward=a|b"}, "no column 'ward' for --config.categories"),
        (GOOD.replace("B", "NA"), {}, "line 3: hospital is 'NA'; name the client"),
        (GOOD.replace("B", "a"), {}, "line 3: hospital is 'a' and 'A' elsewhere; write it in one"),
        (GOOD.replace("B", "1").replace("A", "1.0"), {}, "hospital is '1' and '1.0' elsewhere"),
        (GOOD.replace("B,1", "B,"), {}, "no row of B has a value of died"),
        (GOOD.replace("B,1", "B,2"), {}, "one of two classes, but died has 3 values"),
        (GOOD, {"positive_above": 5.0}, "died is 0 in every row"),
        (GOOD, {"positive_above": 0.5, "loss": "linear"}, "that of loss linear is a number"),
        (GOOD.replace("4,", "1_0,"), {}, "age .'1_0' in line 4."),
        (GOOD.replace("4,", "1e400,"), {}, "age .'1e400' in line 4."),
        (GOOD.replace("4,", "1e200,"), {}, "age has values that are not finite, or whose squares"),
        (GOOD.replace("1,A", "4,A").replace("2,B", "4,B"), {}, "every feature has one value in"),
        (re.sub(r"\n\d", "\n?", GOOD), {}, "age .no value.; pass --config.drop=age."),
        (
            re.sub(r"\n(\d)", r"\n100000000000000\1", GOOD),
            {},
            "age has numbers up to 1000000000000004, which differ by less than 1e-12 of that",
        ),
        (
            re.sub(r"\n(\d)", r"\n1000000000000000000\1", GOOD),
            {},
            "age has numbers up to 1e.19, which differ by less than",
        ),
    ],
)
def test_a_table_that_would_run_and_be_wrong_is_refused_in_a_sentence(config, text, keys, said):
    with pytest.raises(ValueError, match=said):
        table.problem(write(config, text, **{"held_out": 0.0} | keys))


@pytest.mark.parametrize("name", ["t.xlsx", "t.parquet", "t.npz", "t.csv.gz", "no.csv", ""])
def test_files_that_are_no_csv_file_are_refused(config, tmp_path, name):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    config.data = f"{tmp_path}/{name}"
    with pytest.raises(ValueError, match=r"is no CSV file; .*to_csv|there is no file"):
        table.problem(config)


def test_the_columns_of_a_wide_file_are_read_once_each(config):
    names = ",".join(f"x{i}" for i in range(30_000))
    rows = [f"{'1.5,' * 29_999}{i},{'AB'[i % 2]},{i % 2}" for i in range(3)]
    write(config, "\n".join([f"{names},hospital,died", *rows]))
    began = time.process_time()
    assert read(config).x.shape == (3, 30_000)
    assert time.process_time() - began < 10  # a search of the header for each column takes a minute
