"""Total variation on grids against an active-set solver, and on lines against the exact prox."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from fcojax.problems import brain_voxels
from fcojax.transforms import grid_variation, total_variation

HOLES = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [0, 0, 1, 1]], bool)
BRAIN = np.zeros((5, 5, 5), bool)
BRAIN[tuple(brain_voxels(BRAIN.shape, 40).T)] = True
STEP, SCALE = 0.7, 0.9


def differences(mask):
    """Return the matrix D, with a row for each pair of neighbours."""
    cells = [tuple(cell) for cell in np.argwhere(mask)]
    rows = []
    for one, other in itertools.combinations(range(len(cells)), 2):
        if np.abs(np.subtract(cells[one], cells[other])).sum() == 1:
            rows.append(np.eye(len(cells))[other] - np.eye(len(cells))[one])
    return np.array(rows)


def exact(v, mask):
    """The dual is a least squares problem with bounds, which an active-set method solves."""
    matrix = differences(mask)
    bound = STEP * SCALE
    dual = scipy.optimize.lsq_linear(matrix.T, v, (-bound, bound), method="bvls", tol=1e-14).x
    return v - matrix.T @ dual


@pytest.mark.parametrize("mask", [HOLES, BRAIN], ids=["holes", "voxels"])
def test_prox_equals_an_active_set_method_and_value_the_sum(mask):
    v = np.random.default_rng(1).normal(size=np.count_nonzero(mask))
    penalty = grid_variation(mask, 300)
    np.testing.assert_allclose(penalty.prox(v, STEP, SCALE), exact(v, mask), atol=1e-9)
    total = SCALE * np.abs(differences(mask) @ v).sum()
    np.testing.assert_allclose(penalty.value(v, SCALE), total, rtol=1e-12)


def test_a_line_is_as_the_exact_prox():
    v = jnp.asarray(np.random.default_rng(2).normal(size=8))
    moved = grid_variation(np.ones((1, 8, 1), bool), 300).prox(v, STEP, SCALE)
    np.testing.assert_allclose(moved, total_variation().prox(v, STEP, SCALE), atol=1e-12)


def test_parts_that_do_not_touch_and_images_along_further_axes_are_apart():
    v = jnp.asarray(np.random.default_rng(3).normal(size=(7, 2)))
    moved = grid_variation(np.arange(8) != 4, 300).prox(v, STEP, SCALE)
    of_lines = total_variation(axis=0).prox([v[:4], v[4:]], STEP, SCALE)
    np.testing.assert_allclose(moved, np.concatenate(of_lines), atol=1e-12)


def test_images_keep_their_shape_and_any_strength_gives_the_mean():
    image = jnp.asarray(np.random.default_rng(5).normal(size=(3, 4)), jnp.float32)
    penalty = grid_variation(np.ones((3, 4), bool), 200)
    moved = penalty.prox(image, 1e30, 1e30)
    assert moved.shape == image.shape and moved.dtype == image.dtype
    np.testing.assert_allclose(moved, np.full((3, 4), image.mean()), atol=1e-5)
    np.testing.assert_array_equal(penalty.prox(image, 0.0, 1.0), image)


def test_what_is_no_mask_and_what_does_not_fit_one_is_refused():
    with pytest.raises(ValueError, match="dtype int64 and 12 cells; pass booleans"):
        grid_variation(np.ones((3, 4), int))
    with pytest.raises(ValueError, match=r"shape \(4, 3\) but the mask 12 .* pass 12 entries"):
        grid_variation(np.ones((3, 4), bool)).prox(jnp.zeros((4, 3)), 1.0, 1.0)
