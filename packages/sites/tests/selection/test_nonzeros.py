"""Search for a number of nonzeros: it is reached, or its neighbours are, and the cost."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.transforms import group_l2, l1, named, nuclear, on_subtree
from fcojax_sites.cox import cox
from fcojax_sites.selection import nonzeros
from fcojax_sites.selection.nonzeros import Counter, range_of
from tests.selection.test_path import PENALTY, matrices, population


def drawn(seed, num_rows=60, dim=24):
    """Return correlated features of two sites, and a true model with a random support size."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, dim)) + 0.5 * rng.normal(size=(num_rows, 1))
    truth = np.where(rng.random(dim) < rng.uniform(0.1, 0.6), rng.normal(size=dim), 0.0)
    y = x @ truth + rng.uniform(0.1, 1.0) * rng.normal(size=num_rows)
    return fcojax.from_rows({"x": x, "y": y}, [num_rows // 2] * 2, weights="examples")


def exchanges(found):
    """Return the rounds and checks of a path, or of its search."""
    source = found.outcome if found.search is None else found.search
    return int(np.sum(source.rounds) + np.sum(source.checks))


@pytest.mark.slow
def test_thirty_problems_reach_their_number_or_give_both_neighbours_at_little_cost():
    """It takes at most 4 times the exchanges and bytes of one solve at the found strength."""
    ratios = []
    for seed in range(30):
        problem, count = problems.linear(drawn(seed)), 1 + seed % 12
        found = fcojax_sites.path(problem, PENALTY, nonzeros=count)
        assert found.search is not None and bool(found.outcome.solved.all())
        x, y = (np.asarray(problem.train.examples[name]) for name in "xy")
        counts = []
        for strength, model in zip(
            found.strengths.tolist(), np.asarray(found.models["kernel"]), strict=True
        ):
            answer = Lasso(alpha=strength, tol=1e-12, max_iter=100_000).fit(x, y).coef_
            np.testing.assert_allclose(model, answer, atol=1e-4)
            counts.append(int(np.count_nonzero(model)))
        np.testing.assert_array_equal(counts, found.search.numbers)
        if found.search.reached:
            assert counts == [count]
        else:
            assert counts[0] < count < counts[1]
            assert found.strengths[0] / found.strengths[1] < 1.001
        alone = fcojax_sites.path(problem, PENALTY, strengths=[float(found.strengths[-1])])
        sent = [path.ledger.bytes_down + path.ledger.bytes_up for path in (found, alone)]
        ratios.append((exchanges(found) / exchanges(alone), sent[0] / sent[1]))
        print(
            f"{seed}: {count} asked for, {counts} found, exchanges and bytes over one solve's",
            end="",
        )
        print(" {:.2f} {:.2f}".format(*ratios[-1]))
    assert len(ratios) == 30 and np.max(ratios) <= 4
    print("largest and median", np.max(ratios, axis=0), np.median(ratios, axis=0))


TARGETS = {
    "rows": (nonzeros(2, per="row"), l1(), lambda w: (w != 0).sum() / 4, 1.5, 2),
    "columns": (nonzeros(1, per="column"), l1(), lambda w: (w != 0).sum() / 3, 0.5, 1),
    "groups": (
        nonzeros(2, of="groups", axis=1),
        group_l2(axis=1),
        lambda w: (w != 0).any(axis=1).sum(),
        1.5,
        2,
    ),
    "rank": (nonzeros(2, of="rank"), nuclear(), np.linalg.matrix_rank, 1.5, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_counts_by_row_column_and_group_and_ranks(name):
    target, penalty, number, above, highest = TARGETS[name]
    found = fcojax_sites.path(matrices(), penalty, nonzeros=target)
    assert found.search is not None and found.search.reached
    assert above < number(np.asarray(found.models[0])) <= highest
    assert number(np.asarray(found.models[0])) == pytest.approx(found.search.numbers[0])


@pytest.mark.slow
def test_entries_that_enter_at_once_give_two_neighbours_and_the_sparser_is_chosen():
    """With two orthogonal features of equal gradients there are 1 or 3 nonzeros, never 2."""
    data = fcojax.from_rows({"x": 2 * np.eye(4), "y": np.array([4.0, 2.0, 2.0, 0.5])}, [2, 2])
    problem = problems.least_squares(data)
    path = fcojax_sites.path(problem, l1(), nonzeros=2)
    assert path.search is not None and not path.search.reached
    assert path.num_nonzero.tolist() == [1, 3] and "the neighbours found" in str(path)
    np.testing.assert_allclose(path.strengths, 1.0, rtol=2e-4)
    chosen = fcojax_sites.select(problem, l1(), by=nonzeros(2))
    assert chosen.by == "2 nonzeros" and chosen.mean.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(chosen.refit, [2.0, 0.0, 0.0, 0.0], atol=1e-4)
    assert [entry.part for entry in chosen.ledger.entries] == ["rates", "start", "search", "refit"]
    # Before the pair enters, the null model is the sparser neighbour.
    pair = fcojax.from_rows({"x": 2 * np.eye(2), "y": np.array([2.0, 2.0])}, [1, 1])
    path = fcojax_sites.path(problems.least_squares(pair), l1(), nonzeros=1)
    assert path.num_nonzero.tolist() == [0, 2]
    np.testing.assert_allclose(path.objective, [2.0, 2.0], rtol=1e-3)
    # No strength down to the smallest has a fourth nonzero, so the densest model is returned.
    least = fcojax_sites.path(problem, l1(), nonzeros=4, least=0.3)
    assert least.num_nonzero.tolist() == [3]
    np.testing.assert_allclose(least.strengths, 0.3 * 2, rtol=1e-6)


def cox_slope(data, w):
    """The gradient of the stratified partial likelihood by the book, with ties as in Breslow."""
    slope, start = np.zeros(w.size), 0
    for size in data.sizes.tolist():
        x, time, event = (
            np.asarray(data.examples[name])[start : start + size] for name in ("x", "time", "event")
        )
        for i in np.flatnonzero(event):
            at_risk = time >= time[i]
            risk = np.exp(x[at_risk] @ w)
            slope += risk @ x[at_risk] / risk.sum() - x[i]
        start += size
    return slope / start


@pytest.mark.slow
def test_a_cox_model_has_as_many_nonzeros_as_asked_and_is_the_minimiser():
    """Two sites, censored times and ties; each count is that of an optimal model by the book."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(90, 8))
    hazard = np.exp(x @ np.array([1.2, -0.9, 0.6, 0.3, 0, 0, 0, 0]))
    times, censored = rng.exponential(1 / hazard), rng.exponential(2.0, size=90)
    rows = {
        "x": x,
        "time": np.ceil(20 * np.minimum(times, censored)),
        "event": (times <= censored).astype(int),
    }
    data = fcojax.from_rows(rows, [55, 35], weights="examples")
    problem, numbers = cox(data), []
    for count in (1, 4):
        found = fcojax_sites.path(problem, l1(), nonzeros=count, tolerance=1e-5)
        assert found.search is not None and bool(found.outcome.solved.all())
        for strength, model in zip(found.strengths, np.asarray(found.models), strict=True):
            slope, kept = cox_slope(data, model), model != 0
            np.testing.assert_allclose(slope[kept], -strength * np.sign(model[kept]), atol=1e-3)
            assert np.abs(slope).max() <= strength + 1e-3
        counts = np.count_nonzero(found.models, axis=1).tolist()
        assert counts == [count] if found.search.reached else counts[0] < count < counts[1]
        numbers.append(found.search.reached)
    assert any(numbers)
    chosen = fcojax_sites.select(problem, l1(), by=nonzeros(4))
    assert np.count_nonzero(chosen.refit) == np.count_nonzero(chosen.model) <= 4
    slope = cox_slope(data, np.asarray(chosen.refit))
    np.testing.assert_allclose(slope[np.asarray(chosen.refit) != 0], 0, atol=1e-3)


@pytest.mark.slow
def test_the_ledger_of_a_search_counts_rounds_and_checks():
    found = fcojax_sites.path(problems.linear(population()), PENALTY, nonzeros=3)
    entry = found.ledger.entries[2]
    # A model is seven floats; a round also sends the number of steps.
    np.testing.assert_array_equal(entry.down, np.full(3, 56 * exchanges(found)))
    rounds = int(found.search.rounds.sum())
    np.testing.assert_array_equal(entry.up, 56 * exchanges(found) + 8 * rounds)
    assert found.num_nonzero.tolist() == [4]  # with the bias, which does not count
    assert found.search.numbers.tolist() == [3]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"nonzeros": 7},
            "nonzeros is 7 nonzeros but the penalty acts on 6 in all; pass at most 6",
        ),
        ({"nonzeros": nonzeros(2, of="groups", labels=[np.zeros(5, int)])}, "labels of the groups"),
    ],
)
def test_refusals(arguments, message):
    arguments = {"problem": problems.linear(population()), "penalty": PENALTY} | arguments
    with pytest.raises(ValueError, match=message):
        fcojax_sites.path(**arguments)


def test_targets_that_contradict_themselves():
    with pytest.raises(ValueError, match="pass per only for entries"):
        nonzeros(2, per="row", of="rank")
    with pytest.raises(ValueError, match="of is 'entries'"):
        nonzeros(2, axis=0)
    with pytest.raises(ValueError, match="per is 'class'; pass one of"):
        nonzeros(2, per="class")


def test_free_parameters_do_not_count():
    params = {"bias": jnp.ones(2), "kernel": jnp.ones((2, 3))}
    for penalty in (
        on_subtree(l1(), named("kernel")),
        on_subtree(group_l2(axis=0), named("kernel")),
    ):
        goal, leaves = range_of(nonzeros(2, per="row"), penalty, params)
        assert (goal.fewest, goal.highest, goal.most) == (4, 4, 6) and leaves == (False, True)
        assert int(Counter(nonzeros(1).number, leaves)(penalty, params)) == 6
    goal, _ = range_of(nonzeros(2, per="row"), l1(), jnp.ones((5, 3)))
    assert goal.fewest == 8  # above a mean of 1.5
    assert nonzeros(3).number is nonzeros(4).number  # the compiled program does not depend on it
