"""TAMUNA: local steps with control variates; a client sends some coordinates.

Condat, Agarsky, Malinovsky and Richtarik, 2023 (arXiv 2302.09832), Algorithm 1.
In each round q of n clients own a coordinate: m_i is 1 for its owners. From w
clients take K steps along df_i(x_i) - h_i; with S the cohort, and m_j the last
mask that was drawn for client j,

    w+ = w + sum_S p_i m_i (x_i - w) / sum_j p_j m_j,
    h_i <- h_i + n (q - 1) / (q (n - 1)) m_i (w+ - x_i) / (client_lr K).

The source sends w+ to the cohort at once; here a client corrects h_i when it
takes part again, so the h_i add up to zero with any cohort and lost uploads.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.types import Count, Positive


class Hparams(NamedTuple):
    """The clients' step, below 2 / L."""

    client_lr: Positive = 0.01


class Server(NamedTuple):
    """The model, the seed of the owners, and all owners' weight."""

    center: object
    seed: object
    owned: object


@takes(Hparams)
def tamuna(loss, *, num_clients: Count, num_owners: Count):
    """Send q / n of the numbers; with q = n all, as ``prox_skip`` does."""
    n, q, gradient = num_clients, num_owners, mean_gradient(loss)
    if not 2 <= q <= n:
        raise ValueError(f"num_owners is {q}; pass at least 2 and at most {n}.")
    chi = n * (q - 1) / (q * (n - 1))

    def owned_by(seed, client, like):
        vector, unravel = ravel_pytree(like)
        place = jax.random.permutation(jax.random.key(seed), n)[client]
        is_owner = (place - q * (jnp.arange(vector.size) % n)) % n < q
        return unravel(is_owner.astype(vector.dtype))

    def init(hparams, params):
        ones = jax.tree.map(jnp.ones_like, params)
        server = Server(params, jnp.zeros((), "uint32"), ones)
        # A client keeps h, and x and m of its last round.
        return server, (tree.zeros_like(params), params, ones)

    def broadcast(hparams, server):
        return server.center, server.seed

    def client_update(hparams, message, client, local, key):
        (center, seed), (control, point, before) = message, client
        rate = jnp.asarray(hparams.client_lr)
        if not local.all_steps_equal:
            raise ValueError("clients take unequal steps; pass local_steps(K).")
        missed = jax.tree.map(jnp.multiply, before, tree.sub(center, point))
        size = rate * local.num_steps.astype(rate.dtype)
        control = tree.add_scaled(control, chi / size, missed)

        def step(x, batch):
            slope = tree.sub(gradient(x, batch), control)
            return tree.add_scaled(x, -rate, slope)

        end = local.scan(step, center)
        owned = owned_by(seed, local.client, end)
        moved = jax.tree.map(jnp.multiply, owned, tree.sub(end, center))
        upload = moved, tree.sub(owned, before)
        return ClientResult((control, end, owned), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        moved, changed = mean_upload
        owned = tree.add_scaled(server.owned, fraction, changed)

        def mean(x, weight):  # rounding leaves a weight where nobody is owner
            there = weight > jnp.finfo(weight.dtype).eps
            return jnp.where(there, x / weight, 0)

        moved = jax.tree.map(mean, tree.scale(fraction, moved), owned)
        seed = jax.random.bits(key, (), "uint32")
        return Server(tree.add(server.center, moved), seed, owned)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        return 1, q / (2 * n)  # the server can compute the masks itself

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(
        sent=sent, facts=plain.facts._replace(codecs="none", num_clients=n)
    )
