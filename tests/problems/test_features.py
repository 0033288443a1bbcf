"""Features of a population: random features for a Gaussian kernel, products for its square."""

import numpy as np
import pytest

from fcojax import from_clients, problems


def test_random_features_approximate_the_gaussian_kernel():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3)).astype(np.float32)
    data = from_clients([{"x": x[:4], "y": np.arange(4)}, {"x": x[4:], "y": np.arange(2)}])
    seen = problems.random_features(data, num_features=40_000, bandwidth=1.5, seed=4)
    assert seen.offsets.tolist() == data.offsets.tolist()
    assert seen.examples["y"].tolist() == [0, 1, 2, 3, 0, 1]
    features = np.asarray(seen.examples["x"])
    assert features.dtype == np.float32
    squared = ((x[:, None] - x) ** 2).sum(axis=2)
    # Twice the mean of a product of cosines; its standard error is below 1 / sqrt(20,000).
    np.testing.assert_allclose(
        2 * features @ features.T / 40_000, np.exp(-squared / (2 * 1.5**2)), atol=0.03
    )


def test_quadratic_features_have_the_quadratic_kernel():
    x = np.random.default_rng(0).standard_normal((6, 5))
    seen = problems.quadratic_features(from_clients([{"x": x[:4]}, {"x": x[4:]}]))
    features = np.asarray(seen.examples["x"])
    assert seen.sizes.tolist() == [4, 2] and features.shape == (6, 15)
    np.testing.assert_allclose(features @ features.T, (x @ x.T) ** 2, rtol=1e-12)


@pytest.mark.parametrize("features", [problems.quadratic_features, problems.random_features])
def test_fields_without_vectors_of_real_numbers_are_refused(features):
    """Otherwise factors would be rounded to integers like the entries."""
    for x, message in ((np.array([[3, 1]]), "has dtype int"), (np.ones(3), "one vector for each")):
        with pytest.raises(ValueError, match=message):
            features(from_clients([{"x": x}]))
