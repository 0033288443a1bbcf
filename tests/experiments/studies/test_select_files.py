"""Files of every format, and their errors."""

import importlib
import re
import sys

import numpy as np
import pytest

from experiments.studies.select import files
from experiments.studies.select.files import read
from experiments.studies.select.problem import (
    _standardised,
    task,
)
from fcojax.problems import SparseRows
from tests.experiments.studies.select_files import compressed, config_of


def test_formats_give_the_same_table(tmp_path):
    x, y = np.array([[1.0, 2.0], [3.0, 0.5], [0.0, 4.0]], np.float32), np.array([0, 1, 1])
    site = np.array(["b", "a", "a"])
    np.savez(
        tmp_path / "a.npz",
        x=x,
        y=y,
        site=np.array([1, 0, 0]),
        names=["age", "dose"],
        sites=["a", "b"],
    )
    lines = [f"{a},{b},{c},{d}" for (a, b), c, d in zip(x, y, site, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["age,dose,y,site", *lines]))
    rows = [f"{c} 1:{a} 2:{b}" for (a, b), c in zip(x, y, strict=True)]
    (tmp_path / "a.svm").write_text("\n".join(rows) + "\n")
    (tmp_path / "site").write_text("\n".join(site))
    tables = [
        read(config_of(data_dir=tmp_path / "a.npz", features="x", names="names,sites")),
        read(config_of(data_dir=tmp_path / "a.csv")),
        read(config_of(data_dir=tmp_path / "a.svm")),
    ]
    for table in tables:
        np.testing.assert_array_equal(table.x, x)
        np.testing.assert_array_equal(table.y, y)
        assert table.site.tolist() == ["b", "a", "a"]
    assert [table.names for table in tables] == [["age", "dose"], ["age", "dose"], ["x1", "x2"]]
    only = read(config_of(data_dir=tmp_path / "a.csv", drop=("age",)))
    assert only.names == ["dose"] and only.x.shape == (3, 1)
    with pytest.raises(ValueError, match="no column 'outcome'"):
        read(config_of(data_dir=tmp_path / "a.csv", target="outcome"))
    with pytest.raises(ValueError, match="drop names weight, and a.csv has no such feature"):
        read(config_of(data_dir=tmp_path / "a.csv", drop=("weight",)))
    with pytest.raises(ValueError, match="which has 4 files"):
        read(config_of(data_dir=tmp_path))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,y,site\n1,0,b\n1,0,b\n3,1\n", "a.csv, line 4: has 2 cells where the header has 3."),
        (
            "age,smoker,y,site\n1,0,0,b\n1,x,1,b\n",
            "a.csv, line 3: smoker is 'x', which is not a number; pass --config.drop=smoker to "
            "leave that column out, or write numbers, such as 0 and 1.",
        ),
        (
            "age,y,site\n1,0,b\n1,yes,b\n",
            "a.csv, line 3: y is 'yes', which is not a number; it is the target: write numbers, 0 "
            "and 1 for two classes.",
        ),
        ("age,y,site\n1,0,b\n1e999,1,b\n", "a.csv, line 3: age is '1e999', which is not finite;"),
        (
            "age,y,site\n1,0,b\n2,1, \n",
            "a.csv, line 3: site is empty; name the site or remove the row.",
        ),
        ("age,age,y,site\n1,1,0,b\n", "a.csv has 2 columns 'age'; rename one."),
        ("y,site\n1,b\n", "a.csv is left as a feature, only target and site."),
        (",age,y,site\n0,1,0,b\n1,2,1,a\n", "a.csv has a feature '', as pandas names the index of"),
        (
            "Unnamed: 0,age,y,site\n0,1,0,b\n",
            "a.csv has a feature 'Unnamed: 0', as pandas names the index of its rows; write the "
            "file with index=False, or give the column a name.",
        ),
        ("age;y;site\n1;0;b\n", "a.csv has one column, 'age;y;site'; separate cells by commas."),
        ("", "a.csv has no rows; pass a file with a header"),
        ('age,y,site\n1,0,"b\n2,1,a\n', "a.csv, line 3: unexpected end of data; is there an open"),
    ],
)
def test_errors_in_a_csv_file_name_the_line(text, sentence, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(config_of(data_dir=tmp_path / "a.csv"))


GOOD = {"x": np.eye(3), "y": np.array([0, 1, 1]), "site": np.array([0, 1, 2])}


@pytest.mark.parametrize(
    ("arrays", "changes", "sentence"),
    [
        ({"x": np.ones(3)}, {}, "x in .* has shape .3,.; pass .rows, features."),
        ({"y": np.ones((3, 1))}, {}, "y in .* has shape .3, 1.; pass .rows., one number"),
        ({"site": np.ones(2)}, {}, "site in .* has 2 rows but the features have 3"),
        ({"x": np.ones((0, 3))}, {}, "x in .* has shape .0, 3."),
        ({}, {"names": "n"}, "it has no array n, only site, x, y"),
        ({"n": ["a"]}, {"names": "n"}, "n in .* has shape .1,. but x has 3 columns"),
        ({"n": list("abc"), "s": ["A", "B"]}, {"names": "n,s"}, "but site is 2 in a row"),
        ({"site": list("abc"), "s": ["A"]}, {"names": ",s"}, "site in .* is an array of <U1"),
        ({}, {"features": "z"}, "it has no array z, only site, x, y"),
        ({}, {"features": ""}, "features is empty; name an array of .*: x, y, site"),
        ({"x": np.array([[None]])}, {}, "Object arrays cannot be loaded"),
    ],
)
def test_arrays_of_the_wrong_shape_or_name_are_errors(arrays, changes, sentence, tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD | arrays)
    with pytest.raises(ValueError, match=sentence):
        read(config_of(data_dir=tmp_path / "a.npz", **{"features": "x"} | changes))


def test_files_that_are_cut_short_or_misnamed_are_errors(tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD)
    whole = (tmp_path / "a.npz").read_bytes()
    np.save(tmp_path / "x.npy", GOOD["x"])
    broken = [whole[:size] for size in (0, 1, 40, len(whole) // 2, len(whole) - 1)]
    for content in (*broken, b"age,y", (tmp_path / "x.npy").read_bytes()):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(ValueError, match="a.npz is not a numpy npz file") as error:
            read(config_of(data_dir=tmp_path / "a.npz", features="x"))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1\n0\n", "every feature has one value in all rows"),
        ("1 99999999999:1\n0 1:1\n", "a.svm is not LIBSVM text"),
        ("1 2000000000:1\n0 1:1\n", "features up to number 2000000000; number them from 1"),
        ("1 1:1e200\n0 1:2\n", "x1 has values that are not finite, or whose squares are not"),
        ("1e200 1:1\n0 1:2\n", "y has values up to inf"),
        ("1 1:3\n1 1:2\n", "y is 1 in every row"),
    ],
)
def test_libsvm_files_without_a_model_are_errors(text, sentence, tmp_path):
    (tmp_path / "a.svm").write_text(text)
    (tmp_path / "site").write_text("a\nb\n")
    with pytest.raises(ValueError, match=sentence):
        task(config_of(data_dir=tmp_path / "a.svm", positive_above=np.inf))


def test_squares_that_overflow_are_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("age,dose,y,site\n1,2,0,a\n1e200,3,1,b\n")
    with pytest.raises(ValueError, match="age has values that are not finite, or whose squares"):
        task(config_of(data_dir=tmp_path / "a.csv", positive_above=np.inf))


def test_arrays_of_text_and_other_encodings_are_errors(tmp_path):
    for x, y, name in ((["a", "b"], [0, 1], "x"), ([1, 2], ["yes", "no"], "y")):
        np.savez(tmp_path / "a.npz", x=np.array(x)[:, None], y=y, site=[0, 1])
        with pytest.raises(ValueError, match=f"{name} in .* is an array of <U"):
            read(config_of(data_dir=tmp_path / "a.npz", features="x"))
    (tmp_path / "a.csv").write_bytes("\xe4ge,y,site\n1,0,a\n".encode("latin1"))
    with pytest.raises(ValueError, match="a.csv is not text in UTF-8"):
        read(config_of(data_dir=tmp_path / "a.csv"))


def test_features_are_dropped_or_chosen_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffage,who,dose,y,site\n1,Ann,2,0,b\n3,Bo,4,1,a\n", "utf-8")
    dropped = read(config_of(data_dir=tmp_path / "a.csv", drop=("who,dose",)))
    named = read(config_of(data_dir=tmp_path / "a.csv", features="age"))
    for table in (dropped, named):
        assert table.names == ["age"] and table.x.tolist() == [[1.0], [3.0]]
    both = read(config_of(data_dir=tmp_path / "a.csv", features="dose,age"))
    assert both.names == ["dose", "age"] and both.x.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    with pytest.raises(ValueError, match="features names 'y', which is the target or the site"):
        read(config_of(data_dir=tmp_path / "a.csv", features="age,y"))


def test_columns_without_a_value_are_errors(tmp_path):
    (tmp_path / "a.csv").write_text("age,dose,y,site\n,1,0,b\n?,2,1,a\n5,3,,a\n")
    config = config_of(data_dir=tmp_path / "a.csv", positive_above=np.inf)
    with pytest.raises(ValueError, match=r"age has no value .*; pass --config.drop=age to leave"):
        task(config)
    (tmp_path / "a.csv").write_text("age,y,site\n1,,b\n2,NA,a\n")
    with pytest.raises(ValueError, match="y is missing in all rows"):
        task(config)


def test_wide_libsvm_files_stay_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_ENTRIES", 3 * 50 - 1)
    (tmp_path / "a.svm").write_text("1 1:1 50:2\n0 7:3\n1 7:1 9:2\n")
    (tmp_path / "site").write_text("b\na\na")
    table = read(config_of(data_dir=tmp_path / "a.svm", drop=("x9",)))
    assert isinstance(table.x, SparseRows) and table.x.shape == (3, 50)
    scaled, scaling = _standardised(table.x, table.names)
    assert scaled.index.tolist() == [[0, 49], [6, 0], [6, 8]]
    # Mean squares of 1 over the three rows; dropped features and padding stay zero.
    expected = [[1, 1], [3 / np.sqrt(10), 0], [1 / np.sqrt(10), 0]]
    np.testing.assert_allclose(scaled.value, np.sqrt(3) * np.array(expected))
    assert not scaling.mean.any() and scaling.size[[0, 6, 1]].tolist() == [
        pytest.approx(np.sqrt(1 / 3)),
        pytest.approx(np.sqrt(10 / 3)),
        1.0,
    ]


def test_parquet_and_csv_give_the_same_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    csv = importlib.import_module("pyarrow.csv")
    parquet = importlib.import_module("pyarrow.parquet")
    (tmp_path / "a.csv").write_text("age,dose,y,site\n1,2,0,b\n3,,1,a\n0,4,1,a\n")
    assert isinstance(columns := csv.read_csv(tmp_path / "a.csv"), pyarrow.Table)
    parquet.write_table(columns, tmp_path / "a.parquet")
    tables = [read(config_of(data_dir=tmp_path / name)) for name in ("a.csv", "a.parquet")]
    for one, other in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match="is Parquet, which pyarrow reads; pip install pyarrow"):
        read(config_of(data_dir=tmp_path))


def test_npz_files_may_hold_compressed_rows(tmp_path):
    x = np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0], [3, 4, 5]], np.int8)
    np.savez(tmp_path / "a.npz", y=[0, 1, 1, 0], **compressed(x))
    table = read(config_of(data_dir=tmp_path / "a.npz", features="train", client=""))
    np.testing.assert_array_equal(table.x, x)
    assert table.x.dtype == np.float32 and table.site is None and table.names == ["x1", "x2", "x3"]


def test_inconsistent_compressed_rows_are_errors(tmp_path):
    good = compressed(np.eye(3))
    wrong = {
        "y in .* has 2 rows but the features have 3": good | {"y": [0, 1]},
        "no array train_shape": {key: good[key] for key in good if key != "train_shape"},
        "is not a file with a matrix in compressed rows, train": good
        | {"train_indptr": [0, 1, 2, 9]},
    }
    for sentence, arrays in wrong.items():
        np.savez(tmp_path / "a.npz", **{"y": [0, 1, 1], **arrays})
        with pytest.raises(ValueError, match=sentence):
            read(config_of(data_dir=tmp_path / "a.npz", features="train", client=""))


def test_every_format_may_have_no_sites(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.array([0, 1]))
    (tmp_path / "a.csv").write_text("age,dose,y\n1,0,0\n0,1,1\n")
    (tmp_path / "a.svm").write_text("0 1:1\n1 2:1\n")
    for name in ("a.npz", "a.csv", "a.svm"):
        table = read(config_of(data_dir=tmp_path / name, features="x" * ("npz" in name), client=""))
        assert table.site is None
        np.testing.assert_array_equal(table.x, np.eye(2))
    with pytest.raises(
        ValueError, match="there is no .*site.*; write one, or pass --config.client="
    ):
        read(config_of(data_dir=tmp_path / "a.svm"))
