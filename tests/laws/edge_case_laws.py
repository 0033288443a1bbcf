"""Laws of penalties at edge cases: zeros, ties and kinks; half precision; extreme scales.

They use the rows of ``penalty_laws``. Laws of derivatives cover all three arguments of the prox, in
forward and reverse mode.
"""

import functools

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

WIDTH = 1e-7


@functools.cache
def compiled_jacobians(row):
    """``(v, step, scale) -> forward, reverse``, each of shape (size, size + 2)."""

    def joined(blocks):
        by_v, by_step, by_scale = blocks
        return jnp.concatenate([by_v, by_step[:, None], by_scale[:, None]], axis=1)

    def both(v, step, scale):
        forward = jax.jacfwd(row.flat_prox, argnums=(0, 1, 2))(v, step, scale)
        reverse = jax.jacrev(row.flat_prox, argnums=(0, 1, 2))(v, step, scale)
        return joined(forward), joined(reverse)

    return jax.jit(both)


def jacobian(row, v, step, scale):
    """Return the derivative, after checking that both modes agree and are finite."""
    forward, reverse = map(np.asarray, compiled_jacobians(row)(v, float(step), float(scale)))
    assert np.all(np.isfinite(forward)), (v, step, scale)
    np.testing.assert_allclose(forward, reverse, atol=1e-9, rtol=1e-9)
    return forward


def edge_cases(row):
    """Points with zeros and ties; matrices without full rank or with equal singular values."""
    mixed = row.normal(20)
    mixed[0] = 0.0
    mixed[2] = mixed[1]
    return {
        "zeros": np.zeros(row.size),
        "ties": np.ones(row.size),
        "mixed": mixed,
        "first alone": 3.0 * (np.arange(row.size) == 0),
        "normal": row.normal(21),
    }


def no_penalty_is_the_identity(row):
    """At step 0 or scale 0 the prox is the identity, and so is its derivative."""
    for name, v in edge_cases(row).items():
        for step, scale in ((0.0, row.scale), (0.5, 0.0)):
            assert np.allclose(row.prox(v, step, scale), v, atol=1e-14), name
            by_v = jacobian(row, v, step, scale)[:, : row.size]
            assert np.allclose(by_v, np.eye(row.size), atol=1e-12), (name, step, scale)


def an_inactive_ball_is_the_identity(row):
    for name, v in edge_cases(row).items():
        by_v = jacobian(row, v, 0.5, 1e3)
        assert np.allclose(by_v, np.eye(row.size, row.size + 2), atol=1e-12), name


def a_ball_of_radius_zero_has_derivative_zero(row):
    for name, v in edge_cases(row).items():
        assert not np.any(jacobian(row, v, 0.5, 0.0)[:, : row.size]), name


def derivatives_are_difference_quotients(row):
    """Where difference quotients agree from both sides and are additive in the direction."""
    strengths = [(0.5, row.scale)] + [(0.0, row.scale)] * row.free * (not row.indicator)
    smooth = 0
    for v in edge_cases(row).values():
        for step, scale in strengths:
            exact = jacobian(row, v, step, scale)[:, : row.size]
            start = row.prox(v, step, scale)

            def ahead(along, v=v, step=step, scale=scale, start=start):
                return (row.prox(v + WIDTH * along, step, scale) - start) / WIDTH

            one, other = row.normal(22, 2)
            one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
            forth, back = ahead(one), -ahead(-one)
            second, both = ahead(other), ahead(one + other)
            if close(forth, back) and close(second, -ahead(-other)) and close(forth + second, both):
                assert np.allclose(exact @ one, forth, atol=1e-5), (v, step, scale)
                assert np.allclose(exact @ other, second, atol=1e-5), (v, step, scale)
                smooth += 1
    assert smooth  # every prox is differentiable at a generic point


def derivatives_in_step_and_scale_are_right_quotients(row):
    """One-sided derivatives from the right, also at step 0 and scale 0."""
    pairs = [(0.5, row.scale)] + [(0.5, 0.0), (0.0, row.scale)] * (not row.nested)
    for v in edge_cases(row).values():
        for step, scale in pairs:
            exact = jacobian(row, v, step, scale)[:, row.size :].T
            start = row.prox(v, step, scale)
            for found, (more, higher) in zip(exact, ((1.0, 0.0), (0.0, 1.0)), strict=True):
                near, far = (
                    (row.prox(v, step + w * more, scale + w * higher) - start) / w
                    for w in (WIDTH, 4 * WIDTH)
                )
                if close(near, far):
                    assert np.allclose(found, near, atol=1e-5), (v, step, scale, more)


def close(x, y):
    return np.allclose(x, y, atol=1e-5)


def _can_vanish(row):
    return row.free and not row.indicator and row.member is None


DERIVATIVE_LAWS = {
    no_penalty_is_the_identity: _can_vanish,
    an_inactive_ball_is_the_identity: lambda row: row.ball,
    a_ball_of_radius_zero_has_derivative_zero: lambda row: row.ball,
    derivatives_are_difference_quotients: lambda row: True,
    derivatives_in_step_and_scale_are_right_quotients: lambda row: row.free,
}


# Precision: (row, dtype).

SIZES = {
    jnp.float32: (1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30),
    jnp.bfloat16: (1e-30, 1e-20, 1e-8, 1.0, 1e8, 1e20, 1e30),
    jnp.float16: (0.05, 1.0, 300.0, 1e4),
}


def results_of_any_size_agree_with_float64(row, dtype):
    """For scales proportional to the point, and for a fixed scale."""
    narrow = jnp.finfo(dtype)
    for size in SIZES[dtype]:
        v = jax.tree.map(
            lambda leaf: leaf.astype(dtype), row.to_tree(jnp.asarray(size * row.normal(23)))
        )
        exact_v = np.asarray(jax.flatten_util.ravel_pytree(wide(v))[0])
        for scale in (float(np.float32(row.scale * size)), float(np.float32(row.scale))):
            exact = row.prox(exact_v, 1.0, scale)
            moved = prox_of(row)(v, np.float32(scale))
            assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(moved))
            found = np.asarray(jax.flatten_util.ravel_pytree(wide(moved))[0])
            top = np.max(np.abs(exact))
            if row.cancels:
                top = max(top, row.offset, np.max(np.abs(exact_v)))
            room = 8 * row.slack * float(narrow.eps) * top + float(narrow.tiny)
            assert np.all(np.abs(found - exact) <= room), (size, scale, found, exact)


def projections_are_feasible_in_their_own_dtype(row, dtype):
    """At any distance from the set, for numbers of any magnitude."""
    for size in SIZES[dtype]:
        for scale in (row.scale * size, row.scale):
            v = row.to_tree(jnp.asarray(size * row.normal(24)))
            moved = prox_of(row)(jax.tree.map(lambda leaf: leaf.astype(dtype), v), scale)
            assert row.penalty.value(moved, scale) == 0.0, (size, scale)


@functools.cache
def prox_of(row):
    return jax.jit(lambda v, scale: row.penalty.prox(v, jnp.float32(1.0), scale))


def wide(x):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), x)


PRECISION_LAWS = {
    results_of_any_size_agree_with_float64: lambda row: True,
    projections_are_feasible_in_their_own_dtype: lambda row: row.indicator,
}
