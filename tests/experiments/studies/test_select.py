"""A quick selection from files of every format, up to its figures."""

import importlib
import sys
import types

import numpy as np
import pytest

from experiments.studies.select import files
from experiments.studies.select.files import read
from experiments.studies.select.problem import _standardised
from fcojax.problems import SparseRows
from tests.experiments.studies.quick_studies import quick_study


def config_of(**values):
    defaults = {"features": "", "target": "y", "client": "site", "names": "", "drop": ()}
    return types.SimpleNamespace(**defaults | {"loss": "logistic"} | values)


def test_files_of_every_format_say_the_same(tmp_path):
    x, y = np.array([[1.0, 2.0], [3.0, 0.5], [0.0, 4.0]], np.float32), np.array([0, 1, 1])
    site = np.array(["b", "a", "a"])
    np.savez(tmp_path / "a.npz", x=x, y=y, site=np.array([1, 0, 0]), names=["age", "dose"],
             sites=["a", "b"])  # fmt: skip
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
    with pytest.raises(ValueError, match="there are 4 files"):
        read(config_of(data_dir=tmp_path))


def test_wide_libsvm_files_stay_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_ENTRIES", 3 * 50 - 1)
    (tmp_path / "a.svm").write_text("1 1:1 50:2\n0 7:3\n1 7:1 9:2\n")
    (tmp_path / "site").write_text("b\na\na")
    table = read(config_of(data_dir=tmp_path / "a.svm", drop=("x9",)))
    assert isinstance(table.x, SparseRows) and table.x.shape == (3, 50)
    scaled = _standardised(table.x)
    assert scaled.index.tolist() == [[0, 49], [6, 0], [6, 8]]
    # Mean squares of 1 over the three rows; what is dropped, and padding, stays zero.
    expected = [[1, 1], [3 / np.sqrt(10), 0], [1 / np.sqrt(10), 0]]
    np.testing.assert_allclose(scaled.value, np.sqrt(3) * np.array(expected))


def test_parquet_says_the_same_as_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow, which no extra brings")
    csv = importlib.import_module("pyarrow.csv")
    parquet = importlib.import_module("pyarrow.parquet")
    (tmp_path / "a.csv").write_text("age,dose,y,site\n1,2,0,b\n3,,1,a\n0,4,1,a\n")
    assert isinstance(columns := csv.read_csv(tmp_path / "a.csv"), pyarrow.Table)
    parquet.write_table(columns, tmp_path / "a.parquet")
    tables = [read(config_of(data_dir=tmp_path / name)) for name in ("a.csv", "a.parquet")]
    for one, other in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parquet_is_refused_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match="is Parquet, which pyarrow reads; pip install pyarrow"):
        read(config_of(data_dir=tmp_path))


@pytest.mark.long
def test_a_quick_study_has_a_model_a_ledger_and_figures(tmp_path):
    study, config, rows, summary = quick_study("select", tmp_path)
    assert summary["solved"]["strengths solved"] == config.num_strengths
    names = {row["name"] for row in summary["coefficients"]}
    assert names & {f"x{index}" for index in range(1, 31, 5)}
    total = summary["ledger"][-1]
    assert total["bytes up"] == sum(row["bytes up"] for row in summary["sites"])
    drawn = study.figures(config, rows, summary, tmp_path)
    assert {path.stem for path in drawn} == {"path", "coefficients", "sites"}
