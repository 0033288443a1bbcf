"""Two mirrors on disjoint leaves."""

from fcojax.arguments import factory
from fcojax.transforms.calculus.predicates import PathPredicate, split_leaves
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty


@factory
def side_by_side(touches: PathPredicate, chosen: Mirror, rest: Mirror) -> Mirror:
    r"""Combine two mirrors on disjoint leaves, :math:`h(x) = h_1(x_S) + h_2(x_{S^c})`.

    .. math:: P_t(z) = (P^1_t(z_S), P^2_t(z_{S^c})), \qquad
              \psi(x; \lambda) = \psi_1(x_S; \lambda) + \psi_2(x_{S^c}; \lambda)

    For example, kernels have a non-Euclidean geometry and biases a Euclidean one without penalty. h
    is strongly convex in the norm whose square is the sum of the two squared norms, with the
    smaller of the two constants.

    Args:
      touches: ``(path, leaf) -> bool``, selects the leaves of ``chosen``, as for ``on_subtree``.
      chosen: a mirror of the list of the selected leaves, in tree order.
      rest: a mirror of the list of the others.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.calculus.predicates import named
      >>> from fcojax.transforms import euclidean, l1, zero
      >>> mirror = side_by_side(named("kernel"), euclidean(l1()), euclidean(zero()))
      >>> mirror.to_primal({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """

    def value(x, scale):
        selected, others, _ = split_leaves(x, touches)
        first = chosen.penalty.value(selected, scale)
        return first + rest.penalty.value(others, scale).astype(first.dtype)

    def potential(x):
        selected, others, _ = split_leaves(x, touches)
        first = chosen.potential(selected)
        return first + rest.potential(others).astype(first.dtype)

    def each(first, second):
        def both(x, *numbers):
            selected, others, join = split_leaves(x, touches)
            return join(first(selected, *numbers), second(others, *numbers))

        return both

    convex = chosen.penalty.convex and rest.penalty.convex
    return Mirror(
        potential=potential,
        to_dual=each(chosen.to_dual, rest.to_dual),
        from_dual=each(chosen.from_dual, rest.from_dual),
        to_primal=each(chosen.to_primal, rest.to_primal),
        penalty=Penalty(value, each(chosen.penalty.prox, rest.penalty.prox), convex=convex),
        separable=chosen.separable and rest.separable,
    )
