"""Synthetic scans: sessions of clients, and the effect of the label on a voxel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import problems

SMALL = {"grid": (6, 8, 7), "num_voxels": 150, "num_blobs": 2, "share_true": 0.1}


@functools.cache
def surrogate(**options):
    return problems.fmri_surrogate(**SMALL, **options)


def sessions(data, num_scans=18):
    x, y = (np.asarray(data.examples[name]) for name in "xy")
    return x.reshape(-1, num_scans, x.shape[1]), y.reshape(-1, num_scans)


def pattern(problem):
    """Return the true support, from the measures of one voxel at a time."""
    eye = jnp.eye(150, dtype=jnp.float32)
    found = jax.jit(
        jax.vmap(lambda kernel: problem.measures({"kernel": kernel, "bias": jnp.float32(0)}))
    )(eye)
    return np.asarray(found["precision"]) == 1


def test_sessions_are_clients_and_the_last_subject_validates():
    problem = surrogate()
    assert problem.train.sizes.tolist() == [18] * 59
    assert problem.validation.sizes.tolist() == [18] * 12
    for data in (problem.train, problem.validation):
        x, y = sessions(data)
        assert (y.sum(axis=1) == 9).all()
        np.testing.assert_allclose(x.mean(axis=1), 0, atol=1e-5)
        np.testing.assert_allclose(x.std(axis=1), 1, rtol=1e-4)


def test_the_label_moves_the_pattern_alone():
    problem = surrogate(standardise=False, effect=0.8, subject_scale=0.0, session_scale=0.0)
    x, y = (np.asarray(problem.train.examples[name]) for name in "xy")
    effect = x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0)
    # 531 scans of each kind: the standard error of a difference of means is 0.06.
    true = pattern(problem)
    assert true.sum() == 15
    np.testing.assert_allclose(effect[true], 1.6, atol=0.3)
    np.testing.assert_allclose(effect[~true], 0.0, atol=0.3)
    np.testing.assert_allclose(x[y == 1].std(axis=0), 1, atol=0.15)


def test_voxels_form_an_ellipsoid():
    voxels = problems.brain_voxels((40, 64, 64), 39_912)
    assert voxels.shape == (39_912, 3)
    image = problems.on_grid(np.ones(39_912), voxels, (40, 64, 64))
    assert np.nansum(image) == 39_912
    # Symmetric along every axis, with empty corners.
    inside = ~np.isnan(image)
    assert abs(inside[:20].sum() - inside[20:].sum()) <= 64
    assert not inside[[0, 0, -1], [0, -1, 0], [0, 0, -1]].any()
    assert inside[20, 32, 32]
