"""FedComLoc: ProxSkip without a penalty, a compressor in one of three places.

Yi, Meinhardt, Condat and Richtarik, "FedComLoc: communication-efficient
distributed training of sparse and quantized models", TMLR 2025 (arXiv
2403.09904), Algorithm 1. With b_i = w - K client_lr h_i, a compressor C acts on

- the upload (-Com): x_i becomes C(x_i), in h_i too, so that these add up to 0;
- the gradient (-Local): df_i(C(x_i)), with a new draw of C in each step;
- the broadcast (-Global): w+ = C(mean of b + x - w). The source averages x_i,
  not x_i - K client_lr h_i; the means are equal in the other two cases.

The error of C is not fed back, so the limit is not the minimiser; that of
``prox_skip`` with ``fcojax.uploads.ef14`` is.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.types import Positive
from fcojax.uploads import Compressor, facts


class Hparams(NamedTuple):
    """The clients' step."""

    client_lr: Positive = 0.01


class Server(NamedTuple):
    """The model w, and the mean of all b_i, which is not sent."""

    center: object
    mean: object


Place = Literal["upload", "gradient", "broadcast"]


@takes(Hparams)
def fed_com_loc(
    loss, *, compressor: Compressor | None = None, compresses: Place = "upload"
):
    """Take local steps with control variates, and compress whole models."""
    gradient = mean_gradient(loss)

    def through(place, hparams, x, key):
        if compressor is None or place != compresses:
            return x
        vector, unravel = ravel_pytree(x)
        encoded = compressor.encode(hparams, vector, key)
        return unravel(compressor.decode(hparams, encoded, key, vector))

    def init(hparams, params):
        return Server(params, params), params  # a client keeps b_i

    def broadcast(hparams, server):
        return server.center

    def client_update(hparams, message, client, local, key):
        rate = jnp.asarray(hparams.client_lr)
        if not local.all_steps_equal:
            raise ValueError("clients take unequal steps; pass local_steps(K).")
        size = rate * local.num_steps.astype(rate.dtype)
        control = tree.scale(1 / size, tree.sub(message, client))

        def step(x, batch):
            of_step = jax.random.fold_in(key, batch.step)
            seen = through("gradient", hparams, x, of_step)
            slope = tree.sub(gradient(seen, batch), control)
            return tree.add_scaled(x, -rate, slope)

        end = through("upload", hparams, local.scan(step, message), key)
        moved = tree.sub(end, message)
        return ClientResult(tree.add(client, moved), moved, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        center = tree.add(server.mean, mean_upload)
        mean = tree.add_scaled(server.mean, fraction, mean_upload)
        return Server(through("broadcast", hparams, center, key), mean)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        model, whole = before.center, tree.num_bytes(before.center)
        part = 1.0
        if compressor is not None:
            part = facts(compressor, model, hparams).num_bytes / whole
        down = part if compresses == "broadcast" else 1
        return down, part if compresses == "upload" else 1

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(sent=sent, facts=plain.facts._replace(codecs="none"))
