"""Outlier rules: exclude clients from the mean whose upload has too large a norm.

A bound on the norm is a decision about one client. A quantile of the cohort is not: the clients of
a round pass in chunks and on several devices, and their norms are never together in one place. So
the bound is tracked from round to round, by the share of uploads beyond it (Andrew, Thakkar,
McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021).
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.engine.uploads.uplink import split
from fcojax.types import Array, Positive, PyTree, Share


class OutlierRule(NamedTuple):
    """See ``norm_bound`` and ``norm_quantile``.

    Attributes:
      bound: the largest norm of an upload that counts, in the first round or in all.
      quantile: the share of uploads that should lie within the bound; ``None`` for a fixed bound.
      rate: step size of the bound's update.
    """

    bound: float
    quantile: float | None = None
    rate: float = 0.2

    example = "norm_bound(10.0)"

    def first(self) -> Array:
        """Return the bound of the first round."""
        return jnp.asarray(self.bound, jnp.result_type(float))

    def admits(self, upload: PyTree, bound: Array) -> Array:
        """Return whether one client's upload, without its public parts, is within the bound."""
        private, _, _ = split(upload)
        return tree.norm(private).astype(bound.dtype) <= bound

    def updated(self, bound: Array, beyond: Array, arrived: Array) -> Array:
        """Return the bound of the next round; unchanged if no upload arrived.

        Args:
          bound: the bound of this round.
          beyond: number of uploads beyond it.
          arrived: number of uploads that arrived.
        """
        if self.quantile is None:
            return bound
        share = beyond.astype(bound.dtype) / jnp.maximum(arrived, 1).astype(bound.dtype)
        step = jnp.where(arrived > 0, share - (1 - self.quantile), 0)
        return bound * jnp.exp(self.rate * step)


@validated
def norm_bound(bound: Positive) -> OutlierRule:
    """Exclude clients whose upload has a Euclidean norm above a bound.

    The norm is that of the decoded upload without its ``Public`` parts. An excluded client keeps
    the state that it had before the round, and is counted in ``history["outliers"]``.

    Args:
      bound: the largest norm of an upload that counts.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 1e6)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), outliers=norm_bound(10.0))
      >>> model, history = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), plan, num_rounds=60)
      >>> round(float(model), 3), int(history["outliers"][0])
      (1.5, 1)
    """
    return OutlierRule(float(bound))


@validated
def norm_quantile(quantile: Share, start: Positive, rate: Positive = 0.2) -> OutlierRule:
    r"""Exclude clients whose upload's norm is above a running quantile of all norms.

    .. math:: C_{r+1} = C_r \exp(-\eta (b_r - q)), \qquad b_r \text{ the share of norms} \le C_r

    so that in the long run a share q of the uploads is within the bound. The exact quantile of the
    current round would need all its norms at once, or a second pass over the clients; the bound of
    a round depends on the rounds before it only. It is ``state.bound``.

    Args:
      quantile: q; with 1 the bound can only grow.
      start: the bound of the first round, of the size of a typical upload. One that is too large
        by a factor f takes about ``log(f) / (rate * (1 - quantile))`` rounds to come down; one that
        is too small takes ``log(f) / (rate * quantile)``, and until then no client counts.
      rate: eta; the paper's is 0.2.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> rule = fcojax.norm_quantile(0.9, start=1.0)
      >>> bound = rule.updated(rule.first(), jnp.array(2), jnp.array(10))  # 2 of 10 were beyond it
      >>> round(float(bound), 3)  # exp(-0.2 (0.8 - 0.9))
      1.02

    References:
      Andrew, Thakkar, McMahan and Ramaswamy, NeurIPS 2021, section 3. They clip what is beyond the
      bound and add noise to the share; here it is dropped.
    """
    return OutlierRule(float(start), float(quantile), float(rate))


def bound_after(outliers: OutlierRule | None, bound: PyTree, counts: dict[str, Array]) -> PyTree:
    """Return the bound after a round.

    Args:
      outliers: the rule, if there is one.
      bound: the bound of the round.
      counts: the round's counts.
    """
    if outliers is None:
        return bound
    arrived = counts["participants"] - counts["dropped"] - counts["lost"]
    return outliers.updated(bound, counts["outliers"], arrived)
