"""Marks that decide which rows of a table of tests run."""

from collections.abc import Collection, Iterable

import pytest


def with_gate(rows: Iterable, gate: Collection[str]) -> list:
    """Return names, or tuples that end with one, as parameters; those of ``gate`` in the gate."""
    values = [row if isinstance(row, tuple) else (row,) for row in rows]
    marks = [[pytest.mark.gate] if value[-1] in gate else [] for value in values]
    return [pytest.param(*value, marks=mark) for value, mark in zip(values, marks, strict=True)]
