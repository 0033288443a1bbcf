"""Rows and JSON files on disk."""

import json
import math

import numpy as np

from experiments.report import rows as tidy
from experiments.storage.row_store import RowStore


def test_rows_and_json_survive_the_file_without_nan(tmp_path):
    path = tmp_path / "rows.jsonl"
    tidy.write(path, [{"a": 1, "b": math.inf, "c": np.float32(0.5), "d": [math.nan, 2]}])
    RowStore(path).append([{"a": 2}])
    assert tidy.load(path) == [{"a": 1, "b": None, "c": 0.5, "d": [None, 2]}, {"a": 2}]
    tidy.write_json(tmp_path / "x.json", {"score": math.nan, "last": np.arange(2)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"score": None, "last": [0, 1]}
