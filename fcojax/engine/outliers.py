"""Clients whose upload is too large to be believed are left out of the mean.

A bound on the norm is a decision on one client. A quantile of the cohort is not: the clients of a
round pass in chunks and on several devices, and their norms are never together in one place. So the
bound is tracked from round to round, by the share of uploads that are beyond it (Andrew, Thakkar,
McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.work import as_number
from fcojax.engine.cohort import checked_probability
from fcojax.engine.uplink import split
from fcojax.problems.fields import shown
from fcojax.types import Array, PyTree


class Guard(NamedTuple):
    """See ``norm_bound`` and ``norm_quantile``.

    Attributes:
      bound: of the first round, or of all.
      quantile: the share of uploads that is to lie within the bound; ``None`` leaves it as it is.
      rate: how fast the bound moves.
    """

    bound: float
    quantile: float | None = None
    rate: float = 0.2

    def first(self) -> Array:
        """The bound before the first round."""
        return jnp.asarray(self.bound, jnp.result_type(float))

    def admits(self, upload: PyTree, bound: Array) -> Array:
        """Whether one client's upload, without its public parts, is within the bound."""
        private, _, _ = split(upload)
        return tree.norm(private).astype(bound.dtype) <= bound

    def moved(self, bound: Array, beyond: Array, arrived: Array) -> Array:
        """The bound of the next round, after one in which ``beyond`` of ``arrived`` were beyond.

        A round in which nothing arrives leaves it as it is.
        """
        if self.quantile is None:
            return bound
        share = beyond.astype(bound.dtype) / jnp.maximum(arrived, 1).astype(bound.dtype)
        step = jnp.where(arrived > 0, share - (1 - self.quantile), 0)
        return bound * jnp.exp(self.rate * step)


def norm_bound(bound: float) -> Guard:
    """Drops clients whose upload has a Euclidean norm above ``bound``.

    The norm is that of all that is sent but ``Public`` parts, as the server has it: after an uplink
    has decoded it. Whoever is dropped takes its state back, as if it had not taken part, and is
    counted in ``history["outliers"]``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 1e6)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), guard=norm_bound(10.0))
      >>> model, history = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), plan, num_rounds=60)
      >>> round(float(model), 3), int(history["outliers"][0])
      (1.5, 1)
    """
    return Guard(_checked_norm("bound", bound))


def norm_quantile(quantile: float, start: float, rate: float = 0.2) -> Guard:
    r"""Drops clients whose upload's norm is above a bound that follows the cohorts' quantile.

    .. math:: C_{r+1} = C_r \exp(-\eta (b_r - q)), \qquad b_r \text{ the share of norms} \le C_r

    so that in the long run a share q of the uploads is within the bound. The exact quantile of the
    round at hand is not to be had without holding all its norms, or letting all clients work twice:
    the bound of a round is made of the rounds before it. It is ``state.bound``.

    Args:
      quantile: q, above 0 and at most 1; with 1 the bound can only grow.
      start: the bound of the first round, in the size of an honest upload. One that is too large
        by a factor f takes about ``log(f) / (rate * (1 - quantile))`` rounds to come down, one that
        is too small ``log(f) / (rate * quantile)`` to come up; in the meantime nobody is heard.
      rate: eta; the paper's is 0.2.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> guard = fcojax.norm_quantile(0.9, start=1.0)
      >>> bound = guard.moved(guard.first(), jnp.array(2), jnp.array(10))  # 2 of 10 were beyond it
      >>> round(float(bound), 3)  # exp(-0.2 (0.8 - 0.9))
      1.02

    References:
      Andrew, Thakkar, McMahan and Ramaswamy, NeurIPS 2021, section 3. They clip what is beyond the
      bound, and blur the share; here it is dropped.
    """
    if not 0 < as_number(rate) < float("inf"):
        raise ValueError(f"rate is {shown(rate)}; pass a positive number, as in 0.2.")
    return Guard(
        _checked_norm("start", start), checked_probability("quantile", quantile), float(rate)
    )


def _checked_norm(name: str, value: Any) -> float:
    if not 0 < as_number(value) < float("inf"):
        raise ValueError(
            f"{name} is {shown(value)}; pass a positive number, the norm of an upload."
        )
    return float(value)


def bound_after(guard: Guard | None, bound: PyTree, counts: dict[str, Array]) -> PyTree:
    """The bound after a round in which so many uploads arrived, and so many were beyond it."""
    if guard is None:
        return bound
    arrived = counts["participants"] - counts["dropped"] - counts["lost"]
    return guard.moved(bound, counts["outliers"], arrived)
