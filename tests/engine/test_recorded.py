import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.engine.participation.recorded import from_trace

MATRIX = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
LISTS = [[0, 2, 3], [], [1], [0, 1, 2, 3, 4]]
KEY = jax.random.key(2)


def cohorts(sampler, num_rounds, num_clients=5):
    rounds = jnp.arange(num_rounds, dtype=jnp.int32)
    return jax.jit(jax.vmap(lambda index: sampler.draw(KEY, index, num_clients)))(rounds)


def present(drawn):
    members, there = np.asarray(drawn.members), np.asarray(drawn.present)
    return [row[mask].tolist() for row, mask in zip(members, there, strict=True)]


@pytest.mark.parametrize("trace", [MATRIX, MATRIX.astype(float), LISTS])
def test_the_trace_is_followed_and_begins_anew(trace):
    drawn = cohorts(from_trace(trace), 9)
    assert present(drawn) == LISTS + LISTS + LISTS[:1]


def test_a_file_is_the_trace_it_holds(tmp_path):
    np.save(tmp_path / "trace.npy", MATRIX)
    np.savetxt(tmp_path / "trace.csv", MATRIX, delimiter=",", fmt="%d")
    (tmp_path / "trace.json").write_text(json.dumps(LISTS))
    assert from_trace(tmp_path / "trace.npy") == from_trace(MATRIX)
    assert from_trace(str(tmp_path / "trace.csv")) == from_trace(MATRIX)
    assert from_trace(tmp_path / "trace.json") == from_trace(LISTS)


def test_equal_traces_are_one_static_argument():
    again = from_trace(MATRIX.copy())
    assert again == from_trace(MATRIX) and hash(again) == hash(from_trace(MATRIX))
    assert again != from_trace(~MATRIX) and again != from_trace(MATRIX, cohort_size=2)
    assert len(repr(again)) < 100


def test_some_of_those_there_are_a_fair_subset_of_them():
    drawn = cohorts(from_trace(MATRIX, cohort_size=2), 20_000)
    members = present(drawn)
    assert members[1::4] == [[]] * 5_000 and members[2::4] == [[1]] * 5_000
    for offset, num_pairs in ((0, 3), (3, 10)):
        pairs, counts = np.unique(np.sort(members[offset::4], axis=1), axis=0, return_counts=True)
        assert set(pairs.flat) == set(LISTS[offset]) and len(pairs) == num_pairs
        assert stats.chisquare(counts).pvalue > 1e-3
