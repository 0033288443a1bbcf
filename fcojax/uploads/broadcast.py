"""The server's messages: whole, or corrections of an estimate that all clients hold."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms.base import Known
from fcojax.types import Array, Key, PyTree


class Broadcast(NamedTuple):
    """How the server sends its message to all clients, present or not.

    Attributes:
      name: the call that makes it.
      corrected: ``(hparams, estimate, message, key) -> (estimate, sent)``: the clients' new
        estimate of a message, and the arrays that are sent for it.
    """

    name: str
    corrected: Callable[[Any, PyTree, PyTree, Key], tuple[PyTree, PyTree]]

    example = "uploads.ef21p(uploads.top_k(0.1))"


class Estimate(NamedTuple):
    """The clients' estimate of the message, and what was sent for it last."""

    message: PyTree
    sent: PyTree


def first_estimate(broadcast: Broadcast | None, message: PyTree) -> Estimate | tuple:
    """Return the estimate before the first round: clients know the first message."""
    if broadcast is None:
        return ()

    def is_known(part):
        return isinstance(part, Known)

    if any(map(is_known, jax.tree.leaves(message, is_leaf=is_known))):
        raise ValueError(
            "the algorithm's message has a part that clients know without receiving it, as "
            "partial_sharing's, and a compressed broadcast would change it; pass broadcast=None."
        )
    _, sent = broadcast.corrected(None, message, message, jax.random.key(0))
    return Estimate(message, sent)


def next_estimate(
    broadcast: Broadcast,
    hparams: PyTree,
    estimate: Estimate,
    message: PyTree,
    key: Key,
    taken: Array,
) -> Estimate:
    """Return the estimate after a round; it stays if the server took no step."""
    after = Estimate(*broadcast.corrected(hparams, estimate.message, message, key))
    return tree.where(taken & tree.all_finite(after), after, estimate)
