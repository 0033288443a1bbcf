"""Rows and JSON files on disk."""

import json
import math

import numpy as np

from experiments.report import rows as tidy
from experiments.storage.row_store import RowStore


def test_rows_survive_the_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    tidy.write(path, [{"a": 1, "b": math.inf, "c": np.float32(0.5), "d": [math.nan, 2]}])
    RowStore(path).append([{"a": 2}])
    assert tidy.load(path) == [{"a": 1, "b": None, "c": 0.5, "d": [None, 2]}, {"a": 2}]


def test_an_incomplete_last_line_is_ignored(tmp_path):
    path = tmp_path / "rows.jsonl"
    RowStore(path).append([{"a": 1}])
    with open(path, "a") as file:
        file.write('{"a": 2, "b"')
    assert tidy.load(path) == [{"a": 1}]


def test_json_files_have_no_nan(tmp_path):
    tidy.write_json(tmp_path / "x.json", {"score": math.nan, "last": np.arange(2)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"score": None, "last": [0, 1]}
