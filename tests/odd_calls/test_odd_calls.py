"""What a slip gets: one sentence with the culprit and the fix, or what it rightly means."""

import pathlib
import re
import traceback

import jax
import numpy as np
import pytest

import fcojax
from tests.odd_calls import building, numbers, plans, populations, running

TABLES = (running.TABLE, plans.TABLE, populations.TABLE, numbers.TABLE, building.TABLE)
TABLE = {name: odd for table in TABLES for name, odd in table.items()}
REFUSED = [name for name, odd in TABLE.items() if odd.says is not None]
RIGHT = [name for name, odd in TABLE.items() if odd.says is None]
LIBRARY = pathlib.Path(fcojax.__file__).parent
# Every sentence says what to do: it asks for something, or says what is needed.
ASKS = re.compile(
    r"\b(pass|use|call|choose|give|return|make|clean|drop|needs?|must|out of|at least|above|"
    r"remove|numbered)\b"
)


def test_the_table_is_long_and_no_name_hides_another():
    assert len(TABLE) == sum(map(len, TABLES))
    assert len(TABLE) >= 150 and len(REFUSED) >= 100 and len(RIGHT) >= 40


@pytest.mark.parametrize("name", REFUSED)
def test_a_slip_is_told_in_a_sentence(name):
    odd = TABLE[name]
    with pytest.raises((ValueError, TypeError)) as raised:
        odd.call()
    sentence = str(raised.value)
    assert odd.says in sentence
    assert "\n" not in sentence and len(sentence) < 500
    assert ASKS.search(sentence), sentence
    last = traceback.extract_tb(raised.value.__traceback__)[-1].filename
    assert LIBRARY in pathlib.Path(last).parents, f"raised in {last}"


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_only_odd_means_what_it_says(name):
    odd = TABLE[name]
    found = odd.call()
    if isinstance(odd.gives, str):
        assert found == odd.gives
    else:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
            np.asarray(found), np.asarray(odd.gives),
        )  # fmt: skip
