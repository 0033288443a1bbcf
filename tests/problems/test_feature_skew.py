import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fcojax.problems import feature_skew
from fcojax.problems.partition import Partition, iid

MANY = 400  # clients, for statistics over their maps
strengths = st.floats(0, 2)


def probed(dim, **changes):
    """Return the maps x -> A_m x + b_m of many clients, [clients, dim, dim] and [clients, dim].

    Every client has the origin and the unit vectors as its examples.
    """
    probes = np.concatenate([np.zeros((1, dim)), np.eye(dim)])
    features = np.tile(probes, (MANY, 1))
    everybody = Partition(np.arange(len(features)), np.full(MANY, dim + 1))
    skewed = feature_skew(features, everybody, **changes).reshape(MANY, dim + 1, dim)
    return np.swapaxes(skewed[:, 1:] - skewed[:, :1], 1, 2), skewed[:, 0]


def normal(draws):
    return stats.kstest(np.ravel(draws), "norm").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(30, 1), (30, 5), (30, 4, 3, 2)])
def test_without_strength_nothing_changes(shape, dtype):
    features = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    given = features.copy()
    skewed = feature_skew(features, iid(30, 4), seed=3)
    assert skewed.dtype == dtype and np.array_equal(skewed, features)
    assert skewed is not features and np.array_equal(features, given)
    changed = feature_skew(features, iid(30, 4), shift=1.0, scale=0.5, rotation=1.0, seed=3)
    assert changed.shape == shape and changed.dtype == dtype and (changed != features).all()
    assert np.array_equal(features, given)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), strengths, strengths, strengths, st.integers(0, 99))
def test_a_client_has_one_affine_map_for_all_its_examples(dim, shift, scale, rotation, seed):
    """Affine relations between a client's examples are kept; other clients have no effect."""
    rng = np.random.default_rng(seed)
    split = iid(24, 3, seed=seed)
    features = rng.standard_normal((24, dim))
    for mine in split.indices():
        features[mine[2]] = 0.25 * features[mine[0]] + 0.75 * features[mine[1]]
    knobs = {"shift": shift, "scale": scale, "rotation": rotation, "seed": seed}
    skewed = feature_skew(features, split, **knobs)
    for mine in split.indices():
        between = 0.25 * skewed[mine[0]] + 0.75 * skewed[mine[1]]
        np.testing.assert_allclose(skewed[mine[2]], between, atol=1e-9 * np.abs(skewed).max())
    first = split.indices()[0]
    others = np.setdiff1d(np.arange(24), first)
    features[others] += 1.0
    assert np.array_equal(feature_skew(features, split, **knobs)[first], skewed[first])
    assert np.array_equal(feature_skew(features, split, **knobs)[first[::-1]], skewed[first[::-1]])


@pytest.mark.parametrize("dim", [2, 5])
def test_a_rotation_is_orthogonal(dim):
    """Orthogonal, of determinant one, different for each client, and involving every feature."""
    maps, offsets = probed(dim, rotation=0.8, seed=1)
    assert (offsets == 0).all()
    identity = np.broadcast_to(np.eye(dim), maps.shape)
    np.testing.assert_allclose(maps @ np.swapaxes(maps, 1, 2), identity, atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(maps), 1.0, rtol=1e-13)
    unmoved = np.diagonal(maps, axis1=1, axis2=2) == 1
    assert (unmoved.sum(axis=1) == dim % 2).all()
    times = unmoved.sum(axis=0)
    if dim % 2:
        assert stats.chisquare(times).pvalue > 1e-3
    if dim == 2:
        angles = np.arctan2(maps[:, 1, 0], maps[:, 0, 0])
        wrapped = 0.8 * np.random.default_rng(5).standard_normal(20_000)
        wrapped = np.arctan2(np.sin(wrapped), np.cos(wrapped))
        assert stats.ks_2samp(angles, wrapped).pvalue > 1e-3


def test_a_shift_is_a_normal_offset_of_its_strength():
    maps, offsets = probed(3, shift=2.5, seed=3)
    np.testing.assert_allclose(maps, np.broadcast_to(np.eye(3), maps.shape), atol=1e-14)
    assert normal(offsets / 2.5)
    # Offsets are independent between features and between clients.
    assert stats.pearsonr(offsets[:, 0], offsets[:, 1]).pvalue > 1e-3
    assert stats.pearsonr(offsets[:-1, 0], offsets[1:, 0]).pvalue > 1e-3


def test_a_scale_is_log_normal_for_each_feature():
    maps, offsets = probed(3, scale=0.4, seed=4)
    assert (offsets == 0).all()
    diagonal = np.diagonal(maps, axis1=1, axis2=2)
    assert np.array_equal(maps, diagonal[:, :, None] * np.eye(3))
    logs = np.log(diagonal)
    assert normal(logs / 0.4)
    assert stats.pearsonr(logs[:, 0], logs[:, 1]).pvalue > 1e-3
