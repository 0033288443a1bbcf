"""The study of robust means: one attack on two rules, with few rounds."""

import itertools

import jax
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from configs import robust
from experiments.studies.robust import claims, rows
from experiments.studies.robust.rows import FARTHEST
from fcojax import tree
from fcojax.algorithms import composite_fl
from tests.experiments.studies.quick_studies import draw_figures, quick_study


@pytest.mark.slow
def test_the_mean_is_lost_and_the_median_is_not(tmp_path):
    found = quick_study("robust", tmp_path)
    _, config, found_rows, summary = found
    assert len(found_rows) == 2 * 2 * 2
    for row in found_rows:
        if row["rule"] == "mean":
            assert 1 < row["distance"] <= FARTHEST
        else:
            assert row["distance"] < 0.3
    assert [entry["rule"] for entry in summary["best"]] == ["mean", "median"]
    assert claims.claims(config, found_rows, summary) == []
    assert draw_figures(found, tmp_path) == ["robust.png"]


def test_the_config_has_what_its_claims_need():
    config = robust.get_config()
    cells = itertools.product(
        config.methods, config.rules, config.attacks, config.shares, config.seeds
    )
    names = ("method", "rule", "attack", "share", "seed")
    found = [dict(zip(names, cell, strict=True), distance=0.0) for cell in cells]
    assert len(claims.claims(config, found, {})) == len(config.methods) * (3 + 2 * 3)


def of_whole_gradients(loss):
    """Composite FL whose clients send s_i instead of s_i - c_i, so the server keeps no sum."""
    base = composite_fl(loss, rows.PENALTY)

    def client_update(hparams, message, client, local, key):
        result = base.client_update(hparams, message, client, local, key)
        whole = tree.add(result.upload.change, client)
        return result._replace(upload=result.upload._replace(change=whole))

    def server_update(hparams, server, mean, fraction, key):
        change = mean._replace(change=tree.sub(mean.change, server.control))
        return base.server_update(hparams, server, change, fraction, key)

    return base._replace(client_update=client_update, server_update=server_update)


@pytest.mark.slow
def test_composite_fl_is_moved_far_because_its_server_adds_up_what_attackers_send(monkeypatch):
    """The reason of the study's failed claims: without a sum the same attack has little effect."""
    monkeypatch.setitem(rows.METHODS, "whole", rows.Method("whole", of_whole_gradients))
    config = FrozenConfigDict(robust.get_config())
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # like the launcher
        honest, far = (
            [
                rows._end(config, method, rule, "little_is_enough", 0, share)
                for method in ("composite_fl", "whole")
            ]
            for rule, share in (("mean", 0.0), ("median", 0.2))
        )
    np.testing.assert_allclose(honest[1], honest[0], atol=1e-5)
    moved = np.linalg.norm(np.subtract(far, honest), axis=1) / np.linalg.norm(honest[0])
    assert moved[0] > 0.5 and moved[1] < 0.2
