"""Stability selection: frequencies equal those of separate paths on the parts."""

import jax
import numpy as np
import pytest

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax_sites import selection
from tests.selection.test_path import PENALTY, population


@pytest.mark.slow
@pytest.mark.parametrize("clients", [False, True])
def test_frequencies_are_those_of_paths_on_the_parts(clients):
    data, num_draws = population(sizes=(20, 12, 8, 16)), 4
    problem = problems.linear(data)
    found = selection.stability(
        problem,
        PENALTY,
        strengths=3,
        least=0.1,
        num_draws=num_draws,
        clients=clients,
        tolerance=1e-8,
    )
    split, sizes = selection.hold_out(0.5, clients=clients), np.asarray(data.sizes)
    total = np.zeros((3, 6))
    for draw in range(num_draws):
        part = split(data, jax.random.fold_in(jax.random.key(0), draw)).train
        kept = np.repeat(np.asarray(part.clients)[0] > 0, sizes)
        kept = kept if clients else np.asarray(part.rows)[0] > 0
        owner = np.repeat(np.arange(4), sizes)[kept]
        rows = {name: np.asarray(data.examples[name])[kept] for name in "xy"}
        counts = np.bincount(owner, minlength=4)
        weights = np.asarray(data.weights)[counts > 0]
        fewer = fcojax.from_rows(rows, counts[counts > 0], weights=weights)
        alone = fcojax_sites.path(
            problems.linear(fewer), PENALTY, strengths=np.asarray(found.strengths), tolerance=1e-8
        )
        total += np.asarray(alone.models["kernel"]) != 0
    np.testing.assert_allclose(found.frequencies["kernel"], total / num_draws, atol=1e-12)
    np.testing.assert_array_equal(found.largest["kernel"], total.max(axis=0) / num_draws)
    assert np.all(found.largest["kernel"][:2] == 1)
    assert [entry.part for entry in found.ledger.entries] == [
        "rates",
        "draws' rates",
        "start",
        "path",
        "draws' start",
        "draws",
    ]
