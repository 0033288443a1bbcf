"""Bounds on the norms of uploads: clients beyond them are left out of the round.

A fixed bound needs the norm of one client only. A quantile needs the norms of the whole cohort,
which runs in chunks and on several devices. So the bound follows a quantile from round to round, by
the share of uploads beyond it.

Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping",
NeurIPS 2021, section 3. They clip uploads beyond the bound and add noise to the share, as
``privacy.adaptive_clip`` does; here such uploads are left out.
"""

import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.types import Array, Positive, Scalar, Share
from fcojax.uploads.transform import Facts, Opened, UploadTransform


@factory
def norm_bound(bound: Positive) -> UploadTransform:
    """Return the transform that leaves out clients whose upload has a norm above a bound.

    The norm is taken of the decoded upload without its ``Public`` parts. A client that is left out
    keeps the state that it had before the round, and is counted in ``history["left_out"]``.

    Args:
      bound: the largest Euclidean norm of an upload that counts.

    Example:
      >>> import fcojax
      >>> bound = norm_bound(10.0)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=bound)
      >>> [bool(bound.open(None, [jnp.array(a)], (), ()).weight) for a in (2.0, 1e6)]
      [True, False]
    """
    return UploadTransform(
        f"norm_bound({bound})",
        open=lambda at, payload, own, state: Opened(payload, _within(payload, bound)),
        bound=lambda hparams, norm: jnp.minimum(norm, bound),
        facts=Facts(leaves_out="left_out"),
    )


@factory
def norm_quantile(quantile: Share, start: Positive, rate: Positive = 0.2) -> UploadTransform:
    r"""Return the transform that leaves out norms above a running quantile of all norms.

    .. math:: C_{r+1} = C_r \exp(-\eta (b_r - q)), \qquad b_r \text{ the share of norms} \le C_r

    so that in the long run a share q of the uploads is within the bound. The bound is
    in ``state.memory.transforms``.

    Args:
      quantile: q; with 1 the bound can only grow.
      start: the bound of the first round, of the size of a typical upload. One that is too large
        by a factor f takes about ``log(f) / (rate * (1 - quantile))`` rounds to come down; one that
        is too small takes ``log(f) / (rate * quantile)``, and until then no client counts.
      rate: eta; the paper's is 0.2.

    Example:
      >>> import fcojax
      >>> bound = norm_quantile(0.6, start=10.0)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=bound)
      >>> _, first = bound.init([jnp.zeros(())])
      >>> [bool(bound.open(None, [jnp.array(a)], (), first).weight) for a in (2.0, 1e6)]
      [True, False]
    """

    def receive(at, found, weights, bound):
        arrived = jnp.maximum(weights.arrived, 1).astype(bound.dtype)
        within = weights.count.astype(bound.dtype) / arrived
        following = follow_quantile(bound, within, quantile, rate)
        return found, jnp.where(weights.arrived > 0, following, bound)

    return UploadTransform(
        f"norm_quantile({quantile}, {start}, {rate})",
        lambda payload: ((), jnp.asarray(start, jnp.result_type(float))),
        open=lambda at, payload, own, bound: Opened(payload, _within(payload, bound)),
        receive=receive,
        facts=Facts(leaves_out="left_out"),
    )


def follow_quantile(bound: Array, within: Array, quantile: Scalar, rate: Scalar) -> Array:
    r"""Return :math:`C \exp(-\eta (b - q))`, the bound after C, if a share b is within C."""
    return bound * jnp.exp(-rate * (within - quantile)).astype(bound.dtype)


def _within(payload: list, bound: Scalar) -> Array:
    norm = tree.norm(payload)
    return norm <= jnp.asarray(bound, norm.dtype)
