"""Tables of all libraries give the same population."""

import numpy as np
import pytest

import fcojax
from fcojax import datasets

COLUMNS = {
    "age": np.array([61.0, 54.0, 70.0, 33.0]),
    "dose": np.array([0.5, 1.0, 0.0, 2.0], np.float32),
    "ill": np.array([0, 1, 0, 1]),
    "scan": np.arange(8.0).reshape(4, 2),
    "site": np.array(["Lima", "Ghent", "Lima", "Ghent"]),
}
FIELDS = {"x": ["age", "dose"], "y": "ill", "scan": "scan"}


def as_lists():
    return {name: column.tolist() for name, column in COLUMNS.items()}


def hugging_face():
    made = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")
    return made.Dataset.from_dict(as_lists())


MAKE = {
    "arrays": lambda: COLUMNS,
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(
        as_lists() | {"scan": list(COLUMNS["scan"])}
    ),
    "polars": lambda: pytest.importorskip("polars").DataFrame(as_lists()),
    "arrow": lambda: pytest.importorskip("pyarrow").table(as_lists()),
    "hugging face": hugging_face,
    "hugging face, numpy": lambda: hugging_face().with_format("numpy"),
}


@pytest.mark.parametrize("library", MAKE)
def test_a_table_of_any_library_is_the_same_population(library):
    data = datasets.by_client(datasets.table(MAKE[library](), FIELDS, client="site"))
    assert data.ids.tolist() == ["Ghent", "Lima"] and data.sizes.tolist() == [2, 2]
    order = [1, 3, 0, 2]
    expected = np.stack([COLUMNS["age"], COLUMNS["dose"]], axis=1).astype("float32")[order]
    np.testing.assert_array_equal(data.examples["x"], expected, strict=True)
    np.testing.assert_array_equal(data.examples["y"], COLUMNS["ill"][order])
    np.testing.assert_array_equal(data.examples["scan"], COLUMNS["scan"][order])


def test_one_table_per_client_is_the_same_population():
    whole = datasets.by_client(datasets.table(COLUMNS, FIELDS, client="site"))
    parts = {
        site: {name: column[COLUMNS["site"] == site] for name, column in COLUMNS.items()}
        for site in ("Lima", "Ghent")
    }
    for given, ids in ((parts, ["Ghent", "Lima"]), (reversed(parts.values()), [0, 1])):
        data = datasets.by_client(datasets.tables(given, FIELDS))
        assert data.ids.tolist() == ids
        for name, column in whole.examples.items():
            np.testing.assert_array_equal(data.examples[name], column)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (["a", "b"], "column age holds <U1, such as .*'a'.*; pass numbers, strings as their codes"),
        ([[1.0], [1.0, 2.0]], "column age have different shapes"),
    ],
)
def test_columns_that_are_no_numbers_are_refused(column, sentence):
    with pytest.raises(ValueError, match=sentence):
        datasets.table({"age": column}, {"x": "age"})


def test_frames_are_not_read_by_the_place_of_their_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0], "y": [2.0]})
    for call in (
        lambda: fcojax.from_clients([frame, frame[["y", "x"]]]),
        lambda: fcojax.from_rows(frame, [1]),
        lambda: datasets.table(pandas.concat([frame, frame], axis=1), {"x": "x"}),
    ):
        with pytest.raises(ValueError, match=r"datasets\.tables\(|several columns x"):
            call()


def test_missing_cells_can_be_dropped():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, None, 3.0], "site": ["b", "a", "b"]})
    pooled = datasets.table(frame, {"x": ["age"]}, client="site")
    with pytest.raises(ValueError, match="not finite|NaN|nan"):
        datasets.by_client(pooled)
    data = datasets.by_client(datasets.table(frame.dropna(), {"x": ["age"]}, client="site"))
    assert data.ids.tolist() == ["b"] and isinstance(data, fcojax.ClientData)
