"""Paths and selections over sites equal the simulation: the same models in the same rounds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
import fcojax_sites
from fcojax.transforms import box, euclidean, l1
from fcojax_sites import flower, safetensors
from fcojax_sites.selection import by_client, by_example, ebic, hold_out, nonzeros
from tests.flower.federations import Sites
from tests.flower.three_sites import NAMES, federation_of, loss, rows_of

KEY = jax.random.key(5)
METHODS = {
    "fed_mid_osp": (lambda loss: fcojax.algorithms.fed_mid_osp(loss, euclidean(l1())), 0.2),
    "fed_dual_avg": (lambda loss: fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())), 0.05),
    "composite_fl": (lambda loss: fcojax.algorithms.composite_fl(loss, l1()), 0.1),
}
LIMITS = {"strengths": 3, "least": 0.3, "tolerance": 1e-2, "eval_every": 5, "max_rounds": 40}


def parts(name, **other):
    """Return the federation of a method, and the same arguments for ``fcojax_sites.path``."""
    method, client_lr = METHODS[name]
    plan = fcojax.local_steps(1 if name == "fed_mid_osp" else 2)
    algorithm = method(loss)
    hparams = algorithm.hparams_type(client_lr=client_lr)
    federation = flower.Federation(
        algorithm, plan, hparams, jnp.ones(6, "float64"), loss, l1(), **other
    )
    data = fcojax.from_clients([rows_of()[name] for name in NAMES], federation.weights)
    problem = fcojax.problems.Problem(loss, data, None, lambda key: jnp.zeros(6, "float64"))
    given = {"key": KEY, "method": method, "hparams": hparams, "plan": plan}
    return federation, lambda function, **more: function(problem, l1(), **given, **more)


def assert_equal(path, expected):
    for found, wanted in (
        (path.strengths, expected.strengths),
        (path.models, expected.models),
        (path.objective, expected.objective),
        (path.outcome.violation, expected.outcome.violation),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    for column in ("rounds", "checks", "solved", "diverged"):
        found, wanted = getattr(path.outcome, column), getattr(expected.outcome, column)
        assert found.tolist() == wanted.tolist(), column


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("fed_dual_avg", marks=pytest.mark.gate), "fed_mid_osp", "composite_fl"]
)
def test_a_path_over_sites_is_that_of_the_simulation(name):
    federation, simulate = parts(name)
    solved = []
    path = flower.path(
        federation, flower.in_process(federation, rows_of()), KEY, **LIMITS, progress=solved.append
    )
    expected = simulate(fcojax_sites.path, **LIMITS)
    assert_equal(path, expected)
    assert np.abs(path.models[-1]).max() > 0.1 and expected.outcome.rounds.sum() >= 10
    assert [one["rounds"] for one in solved[1:]] == expected.outcome.rounds.tolist()
    assert path.ledger.ids == NAMES and path.ledger.bytes_up > expected.ledger.bytes_up
    assert path.ledger.rounds == expected.ledger.rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    "by", [by_client(), hold_out(0.4, clients=True), ebic(gaussian=True)], ids=["out", "hold", "ic"]
)
def test_a_choice_over_sites_is_that_of_the_simulation(by):
    federation, simulate = parts("fed_mid_osp", weights="examples")
    transport = flower.in_process(federation, rows_of())
    found = flower.select(federation, transport, KEY, by=by, **LIMITS)
    expected = simulate(fcojax_sites.select, by=by, refit=False, **LIMITS)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-11)
    assert (found.chosen, found.best, found.by) == (expected.chosen, expected.best, expected.by)
    np.testing.assert_allclose(found.model, expected.model, rtol=0, atol=1e-12)
    assert found.ledger.rounds == expected.ledger.rounds
    if expected.fold_outcome is not None:
        assert found.fold_outcome.rounds.tolist() == expected.fold_outcome.rounds.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name, target", [("fed_mid_osp", 3), ("composite_fl", nonzeros(2))])
def test_a_search_over_sites_is_that_of_the_simulation(name, target):
    federation, simulate = parts(name)
    limits = {"least": 0.01, "tolerance": 1e-3, "eval_every": 5, "max_rounds": 200}
    transport, solved = flower.in_process(federation, rows_of()), []
    path = flower.path(
        federation, transport, KEY, nonzeros=target, **limits, progress=solved.append
    )
    expected = simulate(fcojax_sites.path, nonzeros=target, **limits)
    assert_equal(path, expected)
    assert path.search.reached and path.num_nonzero.tolist() == [getattr(target, "count", target)]
    assert path.search.target == expected.search.target and len(path.search.strengths) > 1
    np.testing.assert_allclose(path.search.strengths, expected.search.strengths, rtol=1e-12)
    for column in ("counts", "rounds", "checks", "numbers"):
        found, wanted = getattr(path.search, column), getattr(expected.search, column)
        assert found.tolist() == wanted.tolist(), column
    assert [one["rounds"] for one in solved[1:]] == expected.search.rounds.tolist()
    assert path.ledger.rounds == expected.ledger.rounds


@pytest.mark.slow
def test_a_search_over_sites_without_an_answer_gives_the_neighbours_and_chooses_the_sparser():
    """Two features with equal gradients enter at once, so there is no model with one."""
    federation, _ = parts("fed_mid_osp")
    start = jnp.zeros(2, "float64")
    federation = dataclasses.replace(federation, params=start)
    x = 2 * np.eye(2)
    rows = {"Ghent": {"x": x, "y": np.full(2, 2.0)}, "Lima": {"x": x, "y": np.full(2, 2.0)}}
    found = flower.select(
        federation, flower.in_process(federation, rows), KEY, by=nonzeros(1), tolerance=1e-4
    )
    assert not found.path.search.reached and found.path.num_nonzero.tolist() == [0, 2]
    # (2 w - 2)^2 / 4 + lambda |w| in each coordinate: the first strength is 2.
    np.testing.assert_allclose(found.path.strengths, 2.0, rtol=2e-4)
    assert found.by == "1 nonzeros" and found.scores.tolist() == [[1.0, 1.0]]
    assert found.model.tolist() == [0.0, 0.0] and found.refit is None


class Unsteady(Sites):
    """Sites, of which one does not reply in every other exchange of gradients."""

    count = 0

    def exchange(self, messages):
        replies = {name: self.at(name, message) for name, message in messages.items()}
        if safetensors.loads(messages["Bern"])[1]["kind"] == "certificate":
            self.count += 1
            if self.count % 2:
                del replies["Bern"]
        return replies


@pytest.mark.slow
def test_a_silent_site_is_asked_again_and_a_dead_one_ends_the_path_in_a_sentence():
    federation, simulate = parts("fed_mid_osp")
    path = flower.path(federation, Unsteady(federation).transport, KEY, **LIMITS)
    assert_equal(path, simulate(fcojax_sites.path, **LIMITS))
    sites = Sites(federation)
    silent = flower.Transport(sites.join, lambda messages: {})
    with pytest.raises(
        ValueError,
        match="sites Antwerp, Bern, Cork have not sent its gradient in 3 exchanges; start",
    ):
        flower.path(federation, silent, KEY, **LIMITS)


@pytest.mark.slow
def test_what_a_path_over_sites_cannot_do_is_refused_in_a_sentence():
    federation, _ = parts("fed_mid_osp")
    transport = flower.in_process(federation, rows_of())
    short = LIMITS | {"strengths": 1, "max_rounds": 5}
    with pytest.raises(ValueError, match="the folds divide the rows of sites"):
        flower.select(federation, transport, KEY, by=by_example(2), **short)
    for other in (federation_of("fed_dual_avg"), federation_of("fed_avg", loss=loss, penalty=l1())):
        with pytest.raises(ValueError, match="a path needs the violation and a strength; pass"):
            flower.path(other, transport, KEY)
    with pytest.raises(ValueError, match="the penalty acts on 6 in all; pass at most 6"):
        flower.path(federation, transport, KEY, nonzeros=7)
    without = dataclasses.replace(federation, penalty=box(-1.0, 1.0))
    with pytest.raises(ValueError, match="the penalty has no scale_max"):
        flower.path(without, flower.in_process(without, rows_of()), KEY)
    with pytest.raises(ValueError, match="the penalty has no scale_max"):
        flower.path(without, flower.in_process(without, rows_of()), KEY, nonzeros=2)
