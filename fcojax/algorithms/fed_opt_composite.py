"""FedDualAvg and FedMiD with optimisers of optax, as ``fed_opt`` is FedAvg with them."""

import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public
from fcojax.algorithms.fed_dual_avg import DualPoint, fed_dual_avg
from fcojax.algorithms.fed_mid import fed_mid
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.optimiser import Choose, corrected, optimiser_state, server_optimised
from fcojax.arguments import factory
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror

_GRADIENT_STEP: Choose = optax.sgd(1.0)


@factory
def fed_dual_avg_opt(
    loss: Loss,
    mirror: Mirror,
    *,
    server: Choose | None = None,
    client: Choose | None = None,
    client_prox: bool = True,
) -> Algorithm:
    r"""``fed_dual_avg`` with an optimiser on the server, on the clients, or on both.

    A dual point is :math:`z = \nabla h(w) + T s`, with s a subgradient of psi at the model w. An
    optimiser gets what moves the model, a gradient plus s, and T grows as fast as it steps. This
    vanishes at a fixed point of ``fed_dual_avg``, so the fixed points stay.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server: an optax optimiser with rate 1, or ``(hparams) -> optimiser``; its step is multiplied
        by ``server_lr``. ``None`` for gradient steps.
      client: the same for local steps and ``client_lr``; it starts anew in each round. Clients that
        scale their gradients differently have another limit.
      client_prox: as in ``fed_dual_avg``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([[1.0, 0.9], [3.0, -0.9]])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_dual_avg_opt(
      ...     lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(axis=1), euclidean(l1()),
      ...     server=optax.adam(1.0, eps=1e-3))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, server_lr=0.02, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), fcojax.local_steps(3),
      ...     num_rounds=400)
      >>> print(w.round(2))
      [1.5 0. ]
    """
    plain, gradient = fed_dual_avg(loss, mirror, client_prox=client_prox), mean_gradient(loss)
    local_optimiser = _GRADIENT_STEP if client is None else client

    def subgradient(hparams, point):
        """Return the subgradient of psi at the model of a dual point; zero before any step."""
        excess = tree.sub(point.dual, mirror.to_dual(plain.model(hparams, point)))
        return tree.scale(1 / jnp.where(point.elapsed > 0, point.elapsed, jnp.inf), excess)

    def client_update(hparams, message, kept, local, key):
        s = subgradient(hparams, message)

        def step(carry, batch):
            moved, state = carry
            point = tree.add(message, moved)
            w = plain.model(hparams, point) if client_prox else mirror.from_dual(point.dual)
            found = corrected("client", local_optimiser, hparams, gradient(w, batch), s, w, state)
            spent = found.pace.astype(moved.elapsed.dtype) * hparams.client_lr
            dual = tree.add_scaled(moved.dual, -hparams.client_lr, found.slope)
            return DualPoint(dual, moved.elapsed + spent), found.state

        state = optimiser_state("client", local_optimiser, hparams, plain.model(hparams, message))
        end, _ = local.scan(step, (tree.zeros_like(message), state))
        return ClientResult(kept, Displacement(end.dual, Public(end.elapsed)), {})

    algorithm = plain if client is None else plain._replace(client_update=client_update)
    if server is None:
        return algorithm
    return server_optimised(
        algorithm, server, lambda hparams, before, mean_upload, after: subgradient(hparams, after)
    )


@factory
def fed_mid_opt(
    loss: Loss,
    mirror: Mirror,
    *,
    server: Choose | None = None,
    client: Choose | None = None,
    client_prox: bool = True,
) -> Algorithm:
    """``fed_mid`` with an optimiser on the server, on the clients, or on both.

    See ``fed_dual_avg_opt``. For an optimiser of the clients, the server also sends the subgradient
    of psi that its last prox has found, and there is no local prox.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server: an optax optimiser with rate 1, or ``(hparams) -> optimiser``.
      client: the same for local steps.
      client_prox: as in ``fed_mid``; has to be false with an optimiser of the clients.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_mid_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), client_prox=False,
      ...     server=optax.adam(1.0, eps=1e-3))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, server_lr=0.3, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(()), data, jax.random.key(0), fcojax.local_steps(1),
      ...     num_rounds=300)
      >>> round(float(w), 2)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5
    """
    if client is not None and client_prox:
        raise ValueError(
            "client is given with client_prox=True; a local prox would need the metric of the "
            "optimiser, so pass client_prox=False, or use fed_dual_avg_opt."
        )
    plain, gradient = fed_mid(loss, mirror, client_prox=client_prox), mean_gradient(loss)
    local_optimiser = _GRADIENT_STEP if client is None else client

    def client_update(hparams, message, kept, local, key):
        start, s = message

        def step(carry, batch):
            w, spent, state = carry
            found = corrected("client", local_optimiser, hparams, gradient(w, batch), s, w, state)
            spent += found.pace.astype(spent.dtype) * hparams.client_lr
            z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, found.slope)
            return mirror.from_dual(z), spent, found.state

        none_spent = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        state = optimiser_state("client", local_optimiser, hparams, start)
        end, spent, _ = local.scan(step, (start, none_spent, state))
        return ClientResult(kept, Displacement(tree.sub(end, start), Public(spent)), {})

    def subgradient(hparams, before, mean_upload, after):
        """Return the subgradient of psi at the model that the prox of this round found."""
        z = tree.add_scaled(mirror.to_dual(before), hparams.server_lr, mean_upload.params)
        step = hparams.server_lr * mean_upload.elapsed.value
        return tree.scale(1 / step, tree.sub(z, mirror.to_dual(after)))

    if client is None and server is None:
        return plain
    algorithm = plain if client is None else plain._replace(client_update=client_update)
    # A gradient step on the server changes nothing, and keeps the subgradient for the clients.
    chosen = _GRADIENT_STEP if server is None else server
    return server_optimised(algorithm, chosen, subgradient, sends_subgradient=client is not None)
