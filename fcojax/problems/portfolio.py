r"""Weights on the simplex: the log-optimal portfolio and the proportions of a mixture.

Both maximise a mean of :math:`\log(r^T w)`, for vectors r of returns or of likelihoods.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array, Count, NonNegative, Positive, Real, Seed


def log_wealth(weights, rows) -> Array:
    """Return ``-log(r^T weights)`` for each row ``r`` of positive returns."""
    return -jnp.log(rows["r"] @ weights)


@validated
def simplex_weights(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Find w >= 0 with sum one that minimises the mean of :math:`-\log(r^T w)` over field ``r``.

    The problem is convex; solve it with the constraint ``transforms.simplex`` or the mirror map
    ``transforms.entropic_simplex``. The start point has equal weights. The measures are
    ``feasibility``, the violation of the sum and the signs; ``support``, the number of weights
    above 1e-6; and, for w on the simplex, ``duality_gap``

    .. math:: \max_i E[r_i / r^T w] - 1 \ge F(w) - F^*,

    which is zero exactly at the minimisers.

    Args:
      train: training data, with a field ``r`` of one vector of positive returns per example.
      validation: validation data, or ``None``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"r": np.array([[1.0, 2.0], [1.0, 2.0]])}, [1, 1])
      >>> problem = fcojax.problems.simplex_weights(data)
      >>> measures = problem.measures(jnp.array([0.5, 0.5]))
      >>> round(float(measures["duality_gap"]), 3), int(measures["support"])  # 2 / 1.5 - 1
      (0.333, 2)

    References:
      Cover, "An algorithm for maximizing expected log investment return", IEEE Trans. Inf. Theory
      1984 (the bound and its optimality condition).
    """
    returns = np.asarray(train.examples["r"])
    if returns.ndim != 2 or not (returns > 0).all():
        raise ValueError(
            f"field r has shape {returns.shape} and least entry {returns.min():g}; pass one vector "
            "of positive numbers per example."
        )
    dim = returns.shape[1]
    slope = jax.grad(lambda weights: population_loss(log_wealth, weights, train))

    def measures(weights):
        outside = jnp.abs(jnp.sum(weights) - 1) + jnp.sum(jnp.maximum(-weights, 0))
        return {
            "duality_gap": jnp.max(-slope(weights)) - 1,
            "feasibility": outside,
            "support": jnp.sum(weights > 1e-6, dtype=jnp.int32),
        }

    def init(key):
        del key
        return jnp.full(dim, 1 / dim, returns.dtype)

    return Problem(log_wealth, train, validation, init, measures)


@validated
def portfolio(
    *,
    num_clients: Count = 20,
    num_examples: Count = 250,
    num_assets: Count = 30,
    drift: Real = 5e-4,
    drift_spread: NonNegative = 5e-4,
    client_spread: NonNegative = 5e-4,
    volatility: NonNegative = 0.02,
    correlation: NonNegative = 0.3,
    num_validation: Count = 60,
    seed: Seed = 0,
) -> Problem:
    r"""The log-optimal portfolio of assets whose daily returns are log-normal.

    .. math:: r = \exp(\mu + s\, b + t\, c_m + \sigma (\sqrt{\rho}\, z_0 1 + \sqrt{1 - \rho}\, z))

    with normal vectors b, c_m, z over the assets and a normal factor z_0 common to all of them.
    The defaults are typical of daily returns of shares.

    Args:
      num_clients: number of clients M, such as markets or periods.
      num_examples: training days per client.
      num_assets: length of r.
      drift: mu, the mean of the logarithm of a return.
      drift_spread: s, the variation of that mean between assets.
      client_spread: t, its variation between clients.
      volatility: sigma, the standard deviation of the logarithm of a return.
      correlation: rho, between two assets; at most 1.
      num_validation: validation days per client.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax
      >>> problem = fcojax.problems.portfolio(num_clients=2, num_examples=5, num_assets=4)
      >>> problem.init(jax.random.key(0)).tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    if correlation > 1:
        raise ValueError(f"correlation is {correlation}; pass a number from 0 to 1.")
    rng = np.random.default_rng(seed)
    means = drift + drift_spread * rng.standard_normal(num_assets)
    means = means + client_spread * rng.standard_normal((num_clients, 1, num_assets))

    def draw(count: int) -> ClientData:
        factor = rng.standard_normal((num_clients, count, 1))
        own = rng.standard_normal((num_clients, count, num_assets))
        shock = correlation**0.5 * factor + (1 - correlation) ** 0.5 * own
        return from_stacked(r=np.exp(means + volatility * shock))

    return simplex_weights(draw(num_examples), draw(num_validation))


@validated
def mixture(
    *,
    num_clients: Count = 20,
    num_examples: Count = 100,
    proportions: tuple[float, ...] = (0.5, 0.3, 0.2, 0.0, 0.0),
    dim: Count = 2,
    separation: NonNegative = 2.0,
    concentration: Positive = 10.0,
    num_validation: Count = 50,
    seed: Seed = 0,
) -> Problem:
    r"""The proportions of a Gaussian mixture with known components, by maximum likelihood.

    Component k is N(c_k, I) with :math:`c_k \sim N(0, s^2 I)`. Client m draws its proportions from
    a Dirichlet distribution with mean ``proportions`` and then its examples. Row i holds
    :math:`r_k = p_k(x_i) / \max_j p_j(x_i)`, so the loss is the negative log-likelihood up to a
    constant. The measures are those of ``simplex_weights`` and ``error_l1``, the l1 distance to
    ``proportions``.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      proportions: mean proportion of each component; those of zero do not occur.
      dim: dimension of the Gaussians.
      separation: s, the standard deviation of the centres.
      concentration: of the Dirichlet distribution; large values make clients alike.
      num_validation: validation examples per client.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.mixture(
      ...     num_clients=2, num_examples=5, proportions=(0.75, 0.25, 0.0))
      >>> rows = problem.train.examples["r"]  # densities, over the largest of the three
      >>> rows.shape, rows.max(axis=1).tolist() == [1.0] * 10
      ((10, 3), True)
    """
    truth = np.asarray(proportions, float)
    if truth.ndim != 1 or (truth < 0).any() or abs(truth.sum() - 1) > 1e-9:
        raise ValueError(f"proportions are {proportions}; pass numbers, 0 or more, with sum one.")
    rng = np.random.default_rng(seed)
    centres = separation * rng.standard_normal((truth.size, dim))
    occurring = np.flatnonzero(truth)
    own = rng.dirichlet(concentration * truth[occurring], num_clients)

    def draw(count: int) -> ClientData:
        component = np.stack([rng.choice(occurring, count, p=p) for p in own]).reshape(-1)
        x = centres[component] + rng.standard_normal((component.size, dim))
        log_density = -((x[:, None, :] - centres) ** 2).sum(axis=2) / 2
        log_density -= log_density.max(axis=1, keepdims=True)
        # Ratios that underflow in float32 must stay positive.
        r = np.maximum(np.exp(log_density), np.finfo(np.float32).tiny)
        return from_stacked(r=r.reshape(num_clients, count, -1))

    problem = simplex_weights(draw(num_examples), draw(num_validation))

    def measures(weights):
        error = jnp.sum(jnp.abs(weights - jnp.asarray(truth, weights.dtype)))
        return problem.measures(weights) | {"error_l1": error}

    return problem._replace(measures=measures)
