"""Files of every format, and their errors."""

import gzip
import importlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from fcojax.problems import SparseRows
from fcojax_sites.studies.select import files
from fcojax_sites.studies.select.files import read
from fcojax_sites.studies.select.problem import _standardised, groups
from tests.studies.select_files import compressed, config_of


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
    with pytest.raises(ValueError, match="no column .outcome.; for --config.target pass one of"):
        read(config_of(data_dir=tmp_path / "a.csv", target="outcome"))
    with pytest.raises(ValueError, match="drop names weight"):
        read(config_of(data_dir=tmp_path / "a.csv", drop=("weight",)))
    with pytest.raises(ValueError, match="which has 4 files"):
        read(config_of(data_dir=tmp_path))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("age,y,site\n1,0,b\n1,0,b\n3,1\n", "a.csv, line 4: has 2 cells where the header has 3."),
        (
            "age,y,site\n1,0,b\n1,yes,b\n",
            "a.csv, line 3: y is 'yes', which is not a number; it is the target: write numbers, 0 "
            "and 1 for two classes.",
        ),
        ("age,age,y,site\n1,1,0,b\n", "a.csv has 2 columns 'age'; rename one."),
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
        ({"site": np.ones(2)}, {}, "site in .* has 2 rows but the features have 3"),
        ({}, {"names": "n"}, "it has no array n, only site, x, y"),
        ({}, {"features": ""}, "features is empty; name an array of .*: x, y, site"),
    ],
)
def test_arrays_of_the_wrong_shape_or_name_are_errors(arrays, changes, sentence, tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD | arrays)
    with pytest.raises(ValueError, match=sentence):
        read(config_of(data_dir=tmp_path / "a.npz", **{"features": "x"} | changes))


def test_features_are_dropped_or_chosen_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeffage,who,dose,y,site\n1,Ann,2,0,b\n3,Bo,4,1,a\n", "utf-8")
    dropped = read(config_of(data_dir=tmp_path / "a.csv", drop=("who,dose",)))
    named = read(config_of(data_dir=tmp_path / "a.csv", features="age"))
    for table in (dropped, named):
        assert table.names == ["age"] and table.x.tolist() == [[1.0], [3.0]]
    both = read(config_of(data_dir=tmp_path / "a.csv", features="dose,age"))
    assert both.names == ["dose", "age"] and both.x.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    with pytest.raises(ValueError, match="features names 'y'"):
        read(config_of(data_dir=tmp_path / "a.csv", features="age,y"))


def test_wide_libsvm_files_stay_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_ENTRIES", 3 * 50 - 1)
    (tmp_path / "a.svm").write_text("1 1:1 50:2\n0 7:3\n1 7:1 9:2\n")
    (tmp_path / "site").write_text("b\na\na")
    table = read(config_of(data_dir=tmp_path / "a.svm", drop=("x9",)))
    assert isinstance(table.x, SparseRows) and table.x.shape == (3, 50)
    scaled, scaling = _standardised(table.x, table.names)
    assert scaled.index.tolist() == [[0, 49], [6, 0], [6, 8]]
    # Mean squares are 1 over the three rows; dropped features and padding stay zero.
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


def test_excel_and_csv_give_the_same_table(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="Excel needs openpyxl")
    text = "age,größe,y,site\n1,2.5,0,b\n3,,1,7\n0,4,1,7\n"
    (tmp_path / "a.csv").write_text(text, "utf-8")
    book = openpyxl.Workbook()
    book.create_sheet("empty")
    for line in [["age", "größe", "y", "site"], [1, 2.5, 0, "b"], [3, None, 1, 7], [0, 4, 1, 7]]:
        book.active.append(line)
    book.save(tmp_path / "a.xlsx")
    tables = [read(config_of(data_dir=tmp_path / name)) for name in ("a.csv", "a.xlsx")]
    for one, other in zip(*tables, strict=True):
        np.testing.assert_array_equal(one, other)
    book.active["A3"] = "#DIV/0!"
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(ValueError, match=r"b.xlsx, row 3: age is '#DIV/0!', which is not a number"):
        read(config_of(data_dir=tmp_path / "b.xlsx"))
    book.create_sheet("more").append(["notes"])
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(ValueError, match="2 sheets"):
        read(config_of(data_dir=tmp_path / "b.xlsx"))
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(ValueError, match="its cells are A1:XFD1048576; delete those beside"):
        read(config_of(data_dir=tmp_path / "b.xlsx"))


def test_files_of_other_programs_say_what_reads_them(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ValueError, match=r"pandas.read_json .* frame.to_csv"):
        read(config_of(data_dir=tmp_path / "a.json"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"age,y,site\n1,0,a\n"))
    with pytest.raises(ValueError, match=r"a.csv.gz is packed; unpack it, and pass a.csv\."):
        read(config_of(data_dir=tmp_path / "a.csv.gz"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match="pip install openpyxl"):
        read(config_of(data_dir=tmp_path / "a.xlsx"))


def test_a_number_stands_for_a_missing_value_where_the_user_says_so(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,y,site\n-999,0,b\n-999.0,1,b\n3,1,b\nunknown,1,b\n")
    table = read(config_of(data_dir=path, missing="unknown,-999"))
    np.testing.assert_array_equal(table.x[:, 0], [np.nan, np.nan, 3, np.nan])
    path.write_text("age,y,site\n-999,0,b\n")
    assert read(config_of(data_dir=path)).x.tolist() == [[-999.0]]
    np.savez(tmp_path / "a.npz", **GOOD)
    with pytest.raises(ValueError, match="write NaN"):
        read(config_of(data_dir=tmp_path / "a.npz", features="x", missing="-999"))


def test_npz_files_may_hold_compressed_rows(tmp_path):
    x = np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0], [3, 4, 5]], np.int8)
    np.savez(tmp_path / "a.npz", y=[0, 1, 1, 0], **compressed(x))
    table = read(config_of(data_dir=tmp_path / "a.npz", features="train", client=""))
    np.testing.assert_array_equal(table.x, x)
    assert table.x.dtype == np.float32 and table.site is None and table.names == ["x1", "x2", "x3"]


def test_every_format_may_have_no_sites(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.array([0, 1]))
    (tmp_path / "a.csv").write_text("age,dose,y\n1,0,0\n0,1,1\n")
    (tmp_path / "a.svm").write_text("0 1:1\n1 2:1\n")
    for name in ("a.npz", "a.csv", "a.svm"):
        table = read(config_of(data_dir=tmp_path / name, features="x" * ("npz" in name), client=""))
        assert table.site is None
        np.testing.assert_array_equal(table.x, np.eye(2))
    with pytest.raises(ValueError, match="pass --config.client="):
        read(config_of(data_dir=tmp_path / "a.svm"))


def test_a_column_of_one_number_is_no_feature_whatever_its_rounding():
    x = np.column_stack([np.full(7, 0.1), np.arange(7.0)])
    assert x[:, 0].std() > 0  # because of rounding in the mean
    scaled, scaling = _standardised(x, ["same", "varies"])
    assert not scaled[:, 0].any() and scaling.size[0] == 1
    assert scaled[:, 1].std() == pytest.approx(1)


@pytest.mark.parametrize("text", ["", 'age,"lab\n', "age,lab\0\n"])
def test_a_file_of_groups_that_names_none_is_refused(tmp_path, text):
    (tmp_path / "groups.csv").write_text(text)
    with pytest.raises(ValueError, match="groups.csv"):
        groups(str(tmp_path / "groups.csv"))


def test_one_site_has_one_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,y,site\n1,0,Z\u00fcrich\n2,1,Zu\u0308rich\n", "utf-8")
    assert set(read(config_of(data_dir=path)).site) == {"Z\u00fcrich"}
    for one, other in (("Bern", "bern"), ("1", "1.0")):
        path.write_text(f"age,y,site\n1,0,{one}\n2,1,{other}\n")
        with pytest.raises(ValueError, match="line 3: site"):
            read(config_of(data_dir=path))
    path.write_text("age,y,site\n1,0,NA\n2,1,b\n")
    with pytest.raises(ValueError, match="line 2: site"):
        read(config_of(data_dir=path))


SEEN = ["Ulm", "U\u200blm", "Ul\u00adm", "\ufeffUlm"]  # letters that nobody sees
WRONG_SITES = [["Ulm", "ulm"], ["1", "1.0"], ["Ulm", "NA"], ["Ulm", " "]]


@pytest.mark.parametrize("suffix", ["csv", "npz", "indexed.npz", "svm", "folder"])
def test_sites_are_checked_alike_in_every_format(tmp_path, suffix):
    def table(*sites):
        path, given = tmp_path / f"a.{suffix}", {}
        if suffix.endswith("npz"):
            y, indexed = np.arange(len(sites)) % 2, suffix.startswith("indexed")
            column = np.arange(len(sites)) if indexed else np.array(sites)
            given = {"features": "x", "names": "names,sites"[: 11 if indexed else 5]}
            arrays = {"x": y[:, None], "y": y, "site": column, "names": ["a\u200bge"]}
            np.savez(path, **arrays, sites=np.array(sites))
        elif suffix == "svm":
            path.write_text("0 1:1\n1 1:2\n" * (len(sites) // 2))
            (tmp_path / "site").write_text("\n".join(f"{site!s:2}" for site in sites), "utf-8")
        elif suffix == "folder":
            path.mkdir(exist_ok=True)
            for row, site in enumerate(sites):
                (path / f"{row}.csv").write_text(f"a\u200bge,y,site\n1,{row % 2},{site}\n", "utf-8")
        else:
            rows = [f"1,{row % 2},{site}" for row, site in enumerate(sites)]
            path.write_text("\n".join(["a\u200bge,y,site", *rows]), "utf-8")
        return read(config_of(data_dir=path, **given))

    found = table(*SEEN)
    assert set(found.site) == {"Ulm"} and found.names == ["x1" if suffix == "svm" else "age"]
    for sites in WRONG_SITES[: 3 if suffix == "svm" else 4]:  # ids are lines that are not blank
        with pytest.raises(ValueError, match="write it in one way|name the site or remove the row"):
            table(*sites)


def test_files_of_sites_whose_names_differ_in_case_are_refused(tmp_path):
    for site in ("Ulm", "ulm"):
        (tmp_path / f"{site}.csv").write_text("age,y\n1,0\n2,1\n")
    with pytest.raises(ValueError, match=r"ulm.csv: the site is 'ulm' and 'Ulm' elsewhere"):
        read(config_of(data_dir=tmp_path, client=""))


def test_two_arrays_of_one_name_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD, names=["age", "age", "dose"])
    with pytest.raises(ValueError, match="has 2 columns 'age'; rename one"):
        read(config_of(data_dir=tmp_path / "a.npz", features="x", names="names"))


def test_large_numbers_that_hardly_differ_are_no_constant():
    ids = 1e15 + np.arange(7.0)
    with pytest.raises(ValueError, match="id has numbers that differ by less than 1e-12"):
        _standardised(np.column_stack([ids, np.arange(7.0)]), ["id", "varies"])


def test_columns_are_found_by_name_in_a_time_that_grows_with_their_number(tmp_path):
    names = [f"column number {index}" for index in range(20_000)]
    cells = ",".join(["1"] * len(names))
    (tmp_path / "a.csv").write_text(f"{','.join(names)},y,site\n{cells},0,a\n{cells},1,b\n")
    begun = time.process_time()
    assert read(config_of(data_dir=tmp_path / "a.csv")).x.shape == (2, 20_000)
    assert time.process_time() - begun < 3  # 6 s if each name is searched for


def test_missing_values_may_be_written_as_other_programs_do(tmp_path):
    path = tmp_path / "a.csv"
    spellings = ("", "NA", "N/A", "#N/A", "NULL", "null", "?", ".", "nan")
    rows = [f"{cell},{index % 2},b" for index, cell in enumerate(spellings)]
    path.write_text("\n".join(["age,y,site", *rows, "3,1,b"]))
    assert np.isnan(read(config_of(data_dir=path)).x[:-1]).all()


WARDS = "age,ward,died,hospital\n50,icu,1,A\n,surgery,0,B\n40,NA,0,A\n60,medicine,1,B\n"


def of_wards(path, **more):
    return config_of(data_dir=path, target="died", client="hospital", **more)


def test_words_are_levels_beside_a_reference_and_the_error_without_them_says_which(tmp_path):
    (tmp_path / "a.csv").write_text(WARDS)
    with pytest.raises(ValueError) as raised:
        read(of_wards(tmp_path / "a.csv"))
    said = re.search("--config.categories=(.*?)'", str(raised.value))[1]
    assert said == "ward=icu|medicine|surgery"  # and what it says is right
    assert read(of_wards(tmp_path / "a.csv", categories=said)).x.shape == (4, 3)
    config = of_wards(tmp_path / "a.csv", categories="ward=surgery|icu|medicine")
    table = read(config)
    assert table.names == ["age", "ward: icu", "ward: medicine"]
    counted = files.Description.of(config).counted(table.names)
    assert counted.tolist() == [True, True, False]  # a missing word is one value
    np.testing.assert_array_equal(table.x[:, 1:], [[1, 0], [0, 0], [np.nan] * 2, [0, 1]])
    for text, sentence in (
        ("ward=icu|surgery", "line 5: ward is 'medicine', which is not a level; add it to"),
        ("ward=icu", "write NAME=REFERENCE|LEVEL with distinct levels"),
        ("ward=icu|icu", "write NAME=REFERENCE|LEVEL with distinct levels"),
        ("wards=icu|surgery", "no column 'wards'; for --config.categories"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            read(of_wards(tmp_path / "a.csv", categories=text))


def test_an_outcome_of_another_loss_is_no_feature_unless_it_is_said_to_be_none(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,days,died,hospital\n50,7,1,A\n40,9,0,B\n")
    both = {"time": "days", "event": "died"}
    with pytest.raises(ValueError, match="days is the outcome time of another loss and would be"):
        read(of_wards(path, **both))
    with pytest.raises(ValueError, match="days is the outcome time"):
        read(of_wards(path, features="age,days", **both))
    assert read(of_wards(path, drop=("days",), **both)).names == ["age"]
    assert read(of_wards(path, time="", event="died")).names == ["age", "days"]
    survival = read(of_wards(path, loss="cox", **both))
    assert survival.names == ["age"] and survival.event.tolist() == [1, 0]


def test_a_file_for_each_site_is_one_table_whatever_the_order_of_columns(tmp_path):
    (tmp_path / "all.csv").write_text(WARDS)
    given = {"categories": "ward=surgery|icu|medicine"}
    whole = read(of_wards(tmp_path / "all.csv", **given))
    (tmp_path / "sites").mkdir()
    for site, text in (
        ("A", "died,ward,age\n1,icu,50\n0,NA,40\n"),
        ("B", "age,ward,died\n,surgery,0\n60,medicine,1\n"),
    ):
        (tmp_path / "sites" / f"{site}.csv").write_text(text)
    parts = read(config_of(data_dir=tmp_path / "sites", target="died", client="", **given))
    order = [0, 2, 1, 3]
    assert parts.names == ["ward: icu", "ward: medicine", "age"]
    np.testing.assert_array_equal(parts.x[:, [2, 0, 1]], whole.x[order])
    assert parts.site.tolist() == whole.site[order].tolist() and parts.y.tolist() == [1, 0, 0, 1]
    (tmp_path / "sites" / "B.csv").write_text("age,died\n60,1\n")
    with pytest.raises(ValueError, match="B.csv has no column 'ward'; for --config.categories"):
        read(config_of(data_dir=tmp_path / "sites", target="died", client="", **given))
    (tmp_path / "sites" / "A.csv").write_text("sex,age,died\n0,50,1\n")
    with pytest.raises(ValueError, match="B.csv has no column 'sex', which another file has"):
        read(config_of(data_dir=tmp_path / "sites", target="died", client=""))


def test_a_site_imports_neither_the_launcher_nor_its_figures():
    code = "import sys\nimport fcojax_sites.studies.select.apps\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    roots = {name.partition(".")[0] for name in found.stdout.split()}
    assert "fcojax_sites" in roots
    assert not roots & {"experiments", "matplotlib", "scipy", "pandas", "flwr", "orbax"}
