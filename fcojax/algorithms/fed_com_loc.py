r"""FedComLoc: ProxSkip with a compressor in one of three places.

Yi, Meinhardt, Condat and Richtarik, "FedComLoc: communication-efficient distributed training of
sparse and quantized models", TMLR 2025 (arXiv 2403.09904), Algorithm 1.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.arguments import shown
from fcojax.problems.losses import Loss
from fcojax.types import Key, Params, Positive, Scalar


class FedComLocHparams(NamedTuple):
    """``client_lr`` is gamma."""

    client_lr: Positive = 0.01


class Centers(NamedTuple):
    """The model w, and the mean of all :math:`b_i`, which is not sent."""

    center: Params
    mean: Params


@takes(FedComLocHparams)
def fed_com_loc(
    loss: Loss,
    *,
    compressor: Any = None,
    compresses: Literal["upload", "gradient", "broadcast"] = "upload",
) -> Algorithm:
    r"""Local steps with control variates, and a compressor of uploads, gradients or broadcasts.

    It is ``prox_skip`` without a penalty, with the same :math:`h_i` and
    :math:`b_i = w - K \gamma h_i`, and applies a compressor C to

    - the ``"upload"`` (FedComLoc-Com): a client replaces its last point by :math:`C(x_i)`, also in
      its own control variate, so that the :math:`h_i` add up to zero;
    - the point of the ``"gradient"`` (-Local): :math:`\nabla f_i(C(x_i))`, with a new draw of C in
      each step, to train a sparse model; this saves no traffic;
    - the ``"broadcast"`` (-Global): :math:`w^+ = C(\bar b + \bar x - w)`, which with top-k is hard
      thresholding in place of the prox.

    C compresses models, not differences, and its error is never fed back, so the limit is not the
    minimiser; ``prox_skip`` with ``fcojax.uploads.ef14`` is exact. For ``"broadcast"`` the paper
    averages :math:`x_i` and not :math:`x_i - K \gamma h_i`, whose means are equal in the other two
    cases.

    Args:
      loss: one loss per example.
      compressor: C, such as ``fcojax.uploads.top_k(0.1)``; ``None`` compresses nothing.
      compresses: where C is applied.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.array([[h, 4 * h]])} for h in (1.0, 3.0)])
      >>> loss = lambda x, rows: jnp.sum((x[None] - rows["h"]) ** 2, axis=1) / 2
      >>> algorithm = fcojax.algorithms.fed_com_loc(
      ...     loss, compressor=fcojax.uploads.top_k(1), compresses="broadcast")
      >>> x, history = fcojax.run(
      ...     algorithm, algorithm.hparams_type(client_lr=0.2), jnp.zeros(2), data,
      ...     jax.random.key(0), fcojax.local_steps(3), num_rounds=100)
      >>> np.round(x, 3).tolist()
      [0.0, 8.0]
    """
    if compressor is not None and not hasattr(compressor, "leafwise"):
        raise ValueError(
            f"compressor is {shown(compressor)}; pass a Compressor, as in "
            "fcojax.uploads.top_k(0.01)."
        )
    gradient = mean_gradient(loss)

    def one(hparams, x, key):
        assert compressor is not None
        return compressor.decode(hparams, compressor.encode(hparams, x, key), key, x)

    def through(hparams, x: Params, key: Key) -> Params:
        """Return the compressed model."""
        if compressor is None:
            return x
        if compressor.leafwise:
            leaves, structure = jax.tree.flatten(x)
            keys = jax.random.split(key, len(leaves))
            found = [one(hparams, leaf, key) for leaf, key in zip(leaves, keys, strict=True)]
            return jax.tree.unflatten(structure, found)
        vector, unravel = ravel_pytree(x)
        return unravel(one(hparams, vector, key))

    def share(hparams, x: Params) -> Scalar:
        """Return the bytes of a compressed model divided by those of a whole one."""
        if compressor is None:
            return 1
        units = jax.tree.leaves(x) if compressor.leafwise else [ravel_pytree(x)[0]]
        if compressor.num_bytes is not None:
            sent = sum(compressor.num_bytes(hparams, unit) for unit in units)
        else:
            key = jax.random.key(0)
            sent = sum(
                tree.num_bytes(jax.eval_shape(compressor.encode, hparams, unit, key))
                for unit in units
            )
        return sent / tree.num_bytes(x)

    def init(hparams, params):
        jax.eval_shape(through, hparams, params, jax.random.key(0))  # raises if k > d
        return Centers(params, params), params

    def broadcast(hparams, server):
        return server.center

    def client_update(hparams, message, client, local, key):
        if not local.all_steps_equal:
            raise ValueError(
                "clients take different numbers of steps, but fed_com_loc needs equal numbers; "
                "pass local_steps(K)."
            )
        delta = hparams.client_lr * local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        control = tree.scale(1 / delta, tree.sub(message, client))

        def step(x, batch):
            of_step = jax.random.fold_in(key, batch.step)
            seen = through(hparams, x, of_step) if compresses == "gradient" else x
            slope = tree.sub(gradient(seen, batch), control)
            return tree.add_scaled(x, -hparams.client_lr, slope)

        end = local.scan(step, message)
        sent = through(hparams, end, key) if compresses == "upload" else end
        moved = tree.sub(sent, message)
        return ClientResult(tree.add(client, moved), moved, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        center = tree.add(server.mean, mean_upload)
        if compresses == "broadcast":
            center = through(hparams, center, key)
        return Centers(center, tree.add_scaled(server.mean, fraction, mean_upload))

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        part = 1 if compresses == "gradient" else share(hparams, before.center)
        return (part, 1) if compresses == "broadcast" else (1, part)

    return Algorithm(init, broadcast, client_update, server_update, model, sent=sent, codecs="none")
