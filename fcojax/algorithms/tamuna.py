r"""TAMUNA: local steps with control variates, where every client sends only some coordinates.

Condat, Agarsky, Malinovsky and Richtarik, "TAMUNA: doubly accelerated distributed optimization with
local training, compression, and partial participation", 2023 (arXiv 2302.09832), Algorithm 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.types import Array, Count, Params, Positive, PyTree


class TamunaHparams(NamedTuple):
    """``client_lr`` is gamma."""

    client_lr: Positive = 0.01


class Center(NamedTuple):
    """The model, the seed of this round's owners, and the total weight of each coordinate's owners.

    A client owns the coordinates that it was assigned in the last round it took part in. Without
    ``num_owners`` the last two fields are ``()``.
    """

    center: Params
    seed: PyTree
    owned: PyTree


class TamunaClient(NamedTuple):
    """A control variate h, and the last point and the owned coordinates of its last round."""

    control: Params
    point: Params
    owned: PyTree


class TamunaUpload(NamedTuple):
    """The displacement at owned coordinates, and the change of ownership, which is not sent."""

    moved: Params
    owned: PyTree


@takes(TamunaHparams)
def tamuna(
    loss: Loss, *, num_clients: Count | None = None, num_owners: Count | None = None
) -> Algorithm:
    r"""Minimise the mean loss exactly, with K local steps and q / n of the coordinates sent.

    In each round every coordinate is owned by q of the n clients, drawn as a permutation of the
    clients; :math:`m_i` is 1 where client i is an owner. From the model w clients take K steps
    :math:`x_i \leftarrow x_i - \gamma (\nabla f_i(x_i) - h_i)`, and with full participation

    .. math:: w^+ = \frac{\sum_i p_i m_i x_i}{\sum_i p_i m_i}, \qquad
              h_i \leftarrow h_i + \frac{\chi}{\gamma K} m_i (w^+ - x_i), \qquad
              \chi = \frac{n (q - 1)}{q (n - 1)},

    so :math:`\sum_i p_i h_i = 0` at all times. With q = n this is ``prox_skip`` without a penalty,
    also known as Scaffnew. Steps must be below 2 / L. Owners are drawn from a seed in the message,
    so they add nothing to uploads.

    A client updates :math:`h_i` when it takes part again, with the model of that round, its own
    last :math:`x_i` and :math:`m_i`; absent clients keep all three. The server's mean is chosen so
    that the :math:`h_i` add up to zero then too. With S the cohort, and :math:`m_j` the last mask
    that was drawn for client j,

    .. math:: w^+ = w + \frac{\sum_{i \in S} p_i m_i (x_i - w)}{\sum_j p_j m_j},

    which is the mean above with full participation, and exact with any cohort and with lost
    uploads. The paper sends :math:`w^+` to the cohort at once, and takes the mean over q owners in
    the cohort.

    Args:
      loss: one loss per example.
      num_clients: n; needed with ``num_owners``.
      num_owners: q, from 2 to n; ``None`` for n.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.full((1, 1), h)} for h in (1.0, 2.0, 3.0)])
      >>> loss = lambda x, rows: jnp.sum(rows["h"] / 2 * (x[None] - rows["h"]) ** 2, axis=1)
      >>> algorithm = fcojax.algorithms.tamuna(loss, num_clients=3, num_owners=2)
      >>> plan, hparams = fcojax.local_steps(3), algorithm.hparams_type(client_lr=0.2)
      >>> x, history = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(3), data, jax.random.key(0), plan, num_rounds=200)
      >>> np.round(x, 3).tolist(), round(float(history["bytes_up"][0]))  # 14 / 6; 6 of 9 numbers
      ([2.333, 2.333, 2.333], 48)
    """
    gradient, owners = mean_gradient(loss), num_owners
    if owners is not None and (num_clients is None or not 2 <= owners <= num_clients):
        raise ValueError(
            f"num_owners is {owners} and num_clients {num_clients}; pass the number of clients, "
            "and at least 2 and at most as many owners."
        )
    n, q = (num_clients or 1, owners or 1) if owners else (1, 1)
    chi = n * (q - 1) / (q * (n - 1)) if owners and n > 1 else 1.0

    def owned_by(seed: Array, client: Array, like: Params) -> Params:
        """Return 1 where this client is one of the q owners of a coordinate, else 0."""
        place = jax.random.permutation(jax.random.key(seed), jnp.arange(n, dtype=jnp.int32))[client]
        leaves, structure = jax.tree.flatten(like)
        masks, first = [], 0
        for leaf in leaves:
            index = first + jnp.arange(leaf.size, dtype=jnp.int32).reshape(leaf.shape)
            masks.append(((place - q * (index % n)) % n < q).astype(leaf.dtype))
            first += leaf.size
        return jax.tree.unflatten(structure, masks)

    def times(mask: PyTree, x: Params) -> Params:
        return x if owners is None else jax.tree.map(jnp.multiply, mask, x)

    def init(hparams, params):
        seed = () if owners is None else jnp.zeros((), jnp.uint32)
        owned = () if owners is None else jax.tree.map(jnp.ones_like, params)
        return Center(params, seed, owned), TamunaClient(tree.zeros_like(params), params, owned)

    def broadcast(hparams, server):
        return server._replace(owned=())

    def client_update(hparams, message, client, local, key):
        if not local.all_steps_equal:
            raise ValueError(
                "clients take different numbers of steps, but tamuna needs equal numbers; pass "
                "local_steps(K)."
            )
        num_steps = local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        # The correction of h_i needs the round's result, so it waits for the next message.
        missed = times(client.owned, tree.sub(message.center, client.point))
        rate = chi / (hparams.client_lr * num_steps)
        control = tree.add_scaled(client.control, rate, missed)

        def step(x, batch):
            return tree.add_scaled(x, -hparams.client_lr, tree.sub(gradient(x, batch), control))

        end = local.scan(step, message.center)
        moved = tree.sub(end, message.center)
        if owners is None:
            return ClientResult(TamunaClient(control, end, ()), TamunaUpload(moved, ()), {})
        owned = owned_by(message.seed, local.client, end)
        # The server keeps the sum of all clients' masks, so clients upload changes of their masks.
        upload = TamunaUpload(times(owned, moved), tree.sub(owned, client.owned))
        return ClientResult(TamunaClient(control, end, owned), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        moved, owned, seed = tree.scale(fraction, mean_upload.moved), (), ()
        if owners is not None:
            owned = tree.add_scaled(server.owned, fraction, mean_upload.owned)
            # Without an owner nothing has moved, but rounding leaves a nonzero weight.
            moved = jax.tree.map(
                lambda x, m: jnp.where(m > jnp.finfo(m.dtype).eps, x / m, 0), moved, owned
            )
            seed = jax.random.bits(key, (), jnp.uint32)
        return Center(tree.add(server.center, moved), seed, owned)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        # The server computes one of the two arrays of an upload, and q / n of the other is sent.
        return 1, 1 if owners is None else q / (2 * n)

    return Algorithm(init, broadcast, client_update, server_update, model, sent=sent, codecs="none")
