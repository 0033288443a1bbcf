"""Compressed broadcasts with chains and cohorts: equal results of all ways to run.

A sweep, a stream, clients one by one and a run in two parts end in the state of a plain run: the
server's state and memory, and what the clients' transforms keep. The algorithm is FedAvg, with
five clients and five numbers.
"""

import functools

import jax
import numpy as np
import pytest

import fcojax
from fcojax import privacy, uploads
from fcojax.algorithms import fed_avg
from tests.support import federations

pytestmark = pytest.mark.slow

KEYS = jax.random.split(jax.random.key(5), 2)
TOP = uploads.top_k(2)
Swept = fcojax.extended(fed_avg.Hparams, "Swept", share=0.4)
# Two of five entries, or four.
GRID = fcojax.grid.zipped(Swept, client_lr=[0.01, 0.02], share=[0.4, 0.8])

UPLOADS = {
    "whole": [],
    "ef21 of top_k": [uploads.ef21(TOP)],
    "swept rand_k": [uploads.compressed(uploads.rand_k(lambda h: h.share))],
    "ef14 of swept top_k": [uploads.ef14(uploads.top_k(lambda h: h.share))],
    "noise": [uploads.compressed(uploads.qsgd(3)), privacy.gaussian(0.05, noise=0.5)],
}
COHORTS = {
    "everyone": (fcojax.everyone(), []),
    "half, lost": (fcojax.uniform_cohort(cohort_size=3), [fcojax.dropout(0.3)]),
}
GATE = {("ef21 of top_k", "half, lost"), ("swept rand_k", "everyone")}
ROWS = [
    pytest.param(name, cohort, marks=[pytest.mark.gate] if (name, cohort) in GATE else [])
    for name in UPLOADS
    for cohort in COHORTS
]


@functools.cache
def data():
    return fcojax.from_clients(federations.clients(), weights=(1.0, 2.0, 0.5, 3.0, 1.5))


def point(index):
    return jax.tree.map(lambda leaf: leaf[index], GRID)


def after(chosen, hparams, key, plan, num_rounds=5):
    state = fcojax.start(chosen, hparams, federations.start(), data(), key, plan)
    return fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=num_rounds)


def parts(found):
    state, history = found
    counts = {name: history[name] for name in ("bytes_up", "bytes_down", "participants", "lost")}
    return {"server": state.server, "memory": state.memory, "residuals": state.residuals}, counts


def same(found, expected):
    """Require equal states up to rounding, and equal bytes and counts."""
    (state, counts), (wanted, counted) = found, expected
    jax.tree.map(np.testing.assert_array_equal, counts, counted)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14), state, wanted
    )


@pytest.mark.parametrize(("name", "cohort"), ROWS)
def test_sweeps_streams_chunks_and_parts_are_the_run(name, cohort, tmp_path):
    chosen, (who, losses) = federations.algorithm("fed_avg"), COHORTS[cohort]
    chain, broadcast = uploads.chain(*UPLOADS[name], *losses), uploads.ef21p(TOP)
    plan = fcojax.Plan(fcojax.local_steps(2, 2), who, chain, broadcast=broadcast)
    runs = {
        (at, seed): parts(after(chosen, point(at), KEYS[seed], plan))
        for at, seed in np.ndindex(2, 2)
    }
    one = runs[1, 0]

    swept = parts(after(chosen, GRID, KEYS, plan))
    for pair, expected in runs.items():
        same(jax.tree.map(lambda leaf, pair=pair: leaf[pair], swept), expected)

    same(parts(after(chosen, point(1), KEYS[0], plan._replace(client_chunk_size=1))), one)

    half, _ = after(chosen, point(1), KEYS[0], plan, 2)
    whole = fcojax.advance(chosen, point(1), half, data(), plan, num_rounds=3)
    jax.tree.map(np.testing.assert_array_equal, parts(whole)[0], one[0])

    fcojax.save_clients(data(), tmp_path / "population")
    stream = fcojax.Stream(fcojax.open_clients(tmp_path / "population"), plan, eval_every=1)
    state = stream.start(chosen, point(1), federations.start(), KEYS[0])
    same(parts(stream.advance(chosen, point(1), state, num_rounds=5)), one)
