r"""Synthetic problems: data of clients that differ, drawn from a model that is known.

``lasso`` and ``low_rank`` are those of Yuan, Zaheer and Reddi, "Federated composite optimization",
ICML 2021, sections 5.1 and 5.2: squared error without the factor 1/2, and an unpenalised bias.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import at_most, validated
from fcojax.problems.building import from_clients, from_stacked
from fcojax.problems.client_data import ClientData
from fcojax.problems.least_squares import least_squares
from fcojax.problems.linear_models import squared_error
from fcojax.problems.matrix_completion import matrix_completion
from fcojax.problems.measures import at_cuts, rank, support_recovery
from fcojax.problems.pca import pca
from fcojax.problems.problem import Problem
from fcojax.problems.softmax import softmax
from fcojax.types import Array, Count, CountOrZero, NonNegative, Positive, Real, Seed, Share


@validated
def lasso(
    *,
    num_clients: Count = 64,
    num_examples: Count = 128,
    dim: Count = 1024,
    num_true: Count = 512,
    mean_scale: NonNegative = 0.1,
    correlation: float = 0.0,
    bias_scale: NonNegative = 1.0,
    noise_scale: NonNegative = 1.0,
    num_validation: Count = 32,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Linear regression with true weights of one on the first ``num_true`` features, else zero.

    Client m draws :math:`x = \mu_m + \delta` with :math:`\mu_m \sim N(0, s^2 I)` fixed and
    :math:`\delta \sim N(0, \Sigma)`, and observes :math:`y = x^T w + b + \varepsilon`. Large client
    means make the clients' Hessians ill-conditioned: with s = 1 and a thousand features, every
    algorithm diverges at rates above 0.003. Parameters are ``{"bias": b, "kernel": w}``.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      dim: number of features.
      num_true: number of features whose weight is one.
      mean_scale: s, the standard deviation of the client means.
      correlation: c, within (-1, 1), where :math:`\Sigma_{ij} = c^{|i-j|}`.
      bias_scale: standard deviation of the true bias.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation examples per client.
      cuts: magnitudes above which a weight counts as found; all but the first are in the measures'
        names, which are ``f1``, ``density``, ``precision`` and ``recall``.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.lasso(num_clients=3, num_examples=4, dim=6, num_true=2)
      >>> kernel = jnp.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.5])  # one too many
      >>> measures = problem.measures({"kernel": kernel, "bias": jnp.array(0.0)})
      >>> round(float(measures["precision"]), 3), float(measures["recall"])
      (0.667, 1.0)
    """
    at_most("num_true", num_true, dim, f" of {dim} features")
    truth = (np.arange(dim) < num_true).astype(np.float32)
    counts, scales = (num_examples, num_validation), (mean_scale, bias_scale, noise_scale)
    found = recovery(truth, cuts)
    return _with_means(truth, found, num_clients, counts, scales, seed, correlation)


@validated
def low_rank(
    *,
    num_clients: Count = 64,
    num_examples: Count = 128,
    shape: tuple[int, int] = (32, 32),
    true_rank: Count = 16,
    mean_scale: NonNegative = 0.1,
    bias_scale: NonNegative = 1.0,
    noise_scale: NonNegative = 1.0,
    num_validation: Count = 32,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Regression on a matrix with ones on the first ``true_rank`` diagonal entries, else zeros.

    Client m draws matrices :math:`X = \mu_m + \Delta` with fixed entries of :math:`\mu_m` from
    :math:`N(0, s^2)` and entries of :math:`\Delta` from N(0, 1), and observes :math:`y = \langle X,
    W \rangle + b + \varepsilon`. The bias is not penalised.

    The measures are the ``rank`` at each cut and ``error_fro``, the distance of the kernel to W.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      shape: rows and columns of W.
      true_rank: rank of W.
      mean_scale: s, the standard deviation of the entries of the client means.
      bias_scale: standard deviation of the true bias.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation examples per client.
      cuts: magnitudes above which a singular value counts; all but the first appear in the names.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.low_rank(
      ...     num_clients=2, num_examples=4, shape=(3, 3), true_rank=2)
      >>> truth = {"kernel": jnp.diag(jnp.array([1.0, 1.0, 0.0])), "bias": jnp.array(0.0)}
      >>> measures = problem.measures(truth)
      >>> int(measures["rank"]), float(measures["error_fro"])
      (2, 0.0)
    """
    at_most("true_rank", true_rank, min(shape), f" for shape {shape}")
    truth = np.eye(*shape, dtype=np.float32) * (np.arange(shape[1]) < true_rank)

    def measures(params):
        found = at_cuts(lambda cut: rank(params["kernel"], cut), cuts)
        return found | _error(params["kernel"], truth)

    counts, scales = (num_examples, num_validation), (mean_scale, bias_scale, noise_scale)
    return _with_means(truth, measures, num_clients, counts, scales, seed)


@validated
def synthetic_least_squares(
    *,
    num_clients: Count = 10,
    num_examples: Count = 50,
    dim: Count = 20,
    condition: Positive = 10.0,
    covariance_spread: NonNegative = 0.0,
    truth_spread: NonNegative = 0.0,
    noise_scale: NonNegative = 0.1,
    num_validation: Count = 20,
    ridge: NonNegative = 0.0,
    seed: Seed = 0,
) -> Problem:
    r"""Gaussian regression whose clients may differ in their features and their true weights.

    Client m draws :math:`x \sim N(0, \mathrm{diag}(s_m))`, where the variances run geometrically
    from 1 to 1 / ``condition``, each times :math:`\exp(c z)` with z normal, and observes
    :math:`y = x^T (w + t\, u_m) + \varepsilon` with w and :math:`u_m` standard normal. With both
    spreads zero all clients have the same distribution.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      dim: number of features.
      condition: the condition number of the common covariance.
      covariance_spread: c, the log-normal spread of a client's variances.
      truth_spread: t, the standard deviation of the clients' true weights around w.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation examples per client.
      ridge: rho of ``least_squares``.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.synthetic_least_squares(num_clients=3, num_examples=8, dim=2)
      >>> problem.train.examples["x"].shape, sorted(problem.measures(jnp.zeros(2)))
      ((24, 2), ['error', 'suboptimality'])
    """
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(dim) + truth_spread * rng.standard_normal((num_clients, dim))
    spread = np.exp(covariance_spread * rng.standard_normal((num_clients, dim)))
    deviations = np.sqrt(np.geomspace(1, 1 / condition, dim) * spread)

    def features(count):
        return deviations[:, None] * rng.standard_normal((num_clients, count, dim))

    def outcome(x):
        return np.einsum("mnd,md->mn", x, truth) + noise_scale * rng.standard_normal(x.shape[:2])

    return least_squares(*_drawn((num_examples, num_validation), features, outcome), ridge=ridge)


@validated
def synthetic_softmax(
    *,
    num_clients: Count = 30,
    dim: Count = 60,
    num_classes: Count = 10,
    model_spread: NonNegative = 1.0,
    feature_spread: NonNegative = 1.0,
    decay: Real = 1.2,
    size_log_mean: Real = 4.0,
    size_log_scale: NonNegative = 1.0,
    min_size: Count = 10,
    validation_share: Share = 0.2,
    cuts: Sequence[float] = (1e-4, 1e-2),
    seed: Seed = 0,
) -> Problem:
    r"""The generator "Synthetic(alpha, beta)": clients differ in model, features and size.

    .. math:: y = \mathrm{argmax}(W_m^T x + b_m), \quad
              (W_m, b_m) \sim N(u_m, 1), \; u_m \sim N(0, \alpha), \quad
              x \sim N(v_m, \Sigma), \; v_m \sim N(B_m, 1), \; B_m \sim N(0, \beta)

    with :math:`\Sigma_{jj} = j^{-1.2}`. The clients' models differ even at alpha = 0.

    Args:
      num_clients: number of clients M.
      dim: number of features.
      num_classes: number of classes C.
      model_spread: alpha, a variance.
      feature_spread: beta, a variance.
      decay: exponent with which the variances of the features decrease, 1.2 in the formula.
      size_log_mean: mean of the logarithm of a client's number of examples.
      size_log_scale: its standard deviation.
      min_size: examples of every client beyond the log-normal number, at least 2.
      validation_share: share of each client's examples for validation, at least one of them.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_softmax(num_clients=4, dim=3, num_classes=2)
      >>> problem.train.num_clients, len(set(problem.train.sizes.tolist())) > 1  # ragged
      (4, True)

    References:
      Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous
      networks", MLSys 2020, section 5.1.
    """
    at_most("size_log_mean", size_log_mean, 20)  # 5e8 examples
    rng = np.random.default_rng(seed)
    deviations = np.arange(1, dim + 1) ** (-decay / 2)
    train, validation = [], []
    for _ in range(num_clients):
        size = min_size + int(rng.lognormal(size_log_mean, size_log_scale))
        mean = rng.normal(rng.normal(0, feature_spread**0.5), 1, dim)
        centre = rng.normal(0, model_spread**0.5)
        kernel = rng.normal(centre, 1, (dim, num_classes))
        bias = rng.normal(centre, 1, num_classes)
        x = (mean + deviations * rng.standard_normal((size, dim))).astype(np.float32)
        y = np.argmax(x @ kernel + bias, axis=1).astype(np.int32)
        end = size - min(max(1, round(validation_share * size)), size - 1)
        train.append({"x": x[:end], "y": y[:end]})
        validation.append({"x": x[end:], "y": y[end:]})
    drawn = map(from_clients, (train, validation))
    return softmax(*drawn, num_classes=num_classes, cuts=cuts)


@validated
def synthetic_matrix_completion(
    *,
    num_clients: Count = 10,
    shape: tuple[int, int] = (100, 200),
    true_rank: Count = 5,
    share_seen: Share = 0.3,
    own_scale: NonNegative = 0.0,
    noise_scale: NonNegative = 0.1,
    num_validation: CountOrZero = 100,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Matrix completion with random observed entries; every client has some of the columns.

    .. math:: A_m = (L + s E_m) R_m + \varepsilon

    with normal L, E_m and R_m. The measures are those of ``matrix_completion`` and ``error_fro``,
    the distance to the matrix without the noise.

    Args:
      num_clients: number of clients M, a divisor of the number of columns.
      shape: rows and columns of the matrix.
      true_rank: number of columns of L, fewer than the matrix has rows and columns.
      share_seen: share of its entries that a client trains on.
      own_scale: s, the spread of the clients' column spaces; with s > 0 the rank is larger.
      noise_scale: standard deviation of the noise on an entry.
      num_validation: validation entries per client.
      cuts: magnitudes above which a singular value counts; all but the first appear in the names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_matrix_completion(
      ...     num_clients=2, shape=(5, 8), true_rank=1, share_seen=0.5, num_validation=3)
      >>> problem.train.sizes.tolist()  # half of 5 x 4 entries each
      [10, 10]
    """
    rng = np.random.default_rng(seed)
    if shape[1] % num_clients:
        raise ValueError(
            f"num_clients is {num_clients}, which does not divide {shape[1]} columns evenly; pass "
            "a divisor."
        )
    common = rng.standard_normal((shape[0], true_rank))
    left = common + own_scale * rng.standard_normal((num_clients, shape[0], true_rank))
    num_own = shape[0] * shape[1] // num_clients
    num_seen = round(share_seen * num_own)
    if not 0 < num_seen <= num_own - num_validation:
        raise ValueError(
            f"a client has {num_own} entries, too few to train on {num_seen} and validate on "
            f"{num_validation}; pass a smaller share_seen or num_validation."
        )
    right = rng.standard_normal((num_clients, shape[1] // num_clients, true_rank))
    columns = right @ left.transpose(0, 2, 1)
    truth = columns.reshape(-1, shape[0]).T
    train, validation = [], []
    for m, mine in enumerate(columns):
        order = rng.permutation(mine.size)[: num_seen + num_validation]
        for split, places in ((train, order[:num_seen]), (validation, order[num_seen:])):
            column, row = np.array(np.divmod(np.sort(places), shape[0]), np.int32)
            value = mine[column, row] + noise_scale * rng.standard_normal(row.size)
            client = {"row": row, "column": column + np.int32(m * len(mine))}
            split.append(client | {"value": value.astype(np.float32)})
    held_out = from_clients(validation) if num_validation else None
    problem = matrix_completion(from_clients(train), held_out, shape=shape, cuts=cuts)
    return problem._replace(measures=lambda w: problem.measures(w) | _error(w, truth))


@validated
def synthetic_pca(
    *,
    num_clients: Count = 10,
    num_examples: Count = 60,
    dim: Count = 30,
    num_components: Count = 5,
    leading: tuple[float, float] = (2.0, 1.5),
    trailing: tuple[float, float] = (0.7, 0.05),
    num_own: CountOrZero = 2,
    own_scale: NonNegative = 1.0,
    num_validation: Count = 20,
    seed: Seed = 0,
) -> Problem:
    r"""Principal components of rows with a common spectrum and directions that only one client has.

    Client m draws :math:`x = Q\,\mathrm{diag}(\lambda)^{1/2} z + s V_m u` with z and u standard
    normal, Q a common rotation, and random unit vectors as the columns of :math:`V_m`.

    Args:
      num_clients: number of clients M.
      num_examples: training rows per client.
      dim: length of a row.
      num_components: number of columns of the basis, and of leading values.
      leading: first and last of the leading values of lambda, which are evenly spaced.
      trailing: first and last of the other values.
      num_own: number of columns of each V_m.
      own_scale: s, the heterogeneity of the clients.
      num_validation: validation rows per client.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax
      >>> problem = fcojax.problems.synthetic_pca(
      ...     num_clients=2, num_examples=6, dim=4, num_components=2)
      >>> problem.train.examples["x"].shape, problem.init(jax.random.key(0)).shape
      ((12, 4), (4, 2))
    """
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    spectrum = np.concatenate(
        [np.linspace(*leading, num_components), np.linspace(*trailing, dim - num_components)]
    )
    scaled_axes = np.sqrt(spectrum)[:, None] * axes.T
    directions = []

    def rows(count, m):
        common = rng.standard_normal((count, dim)) @ scaled_axes
        if m == len(directions):  # a client's directions are drawn with its training rows
            own = rng.standard_normal((dim, num_own))
            directions.append(own_scale * own / np.linalg.norm(own, axis=0))
        return common + rng.standard_normal((count, num_own)) @ directions[m].T

    counts = num_examples, num_validation
    drawn = (from_stacked(x=np.stack([rows(n, m) for m in range(num_clients)])) for n in counts)
    return pca(*drawn, num_components=num_components)


def recovery(truth: np.ndarray, cuts: Sequence[float]) -> Callable:
    """Return the measures of the support of ``params["kernel"]`` against the planted one."""
    return lambda params: at_cuts(lambda cut: support_recovery(params["kernel"], truth, cut), cuts)


def _error(matrix: Array, truth: np.ndarray) -> dict[str, Array]:
    return {"error_fro": jnp.linalg.norm(matrix - jnp.asarray(truth, matrix.dtype))}


def _drawn(counts, features, outcome) -> list[ClientData]:
    """Draw training and validation data: ``features(count)`` of every client, and their ``y``."""
    return [from_stacked(x=x, y=outcome(x)) for x in map(features, counts)]


def _with_means(truth, measures, num_clients, counts, scales, seed, correlation=0.0) -> Problem:
    """Return a regression with ``scales`` of the clients' feature means, the bias and the noise."""
    mean_scale, bias_scale, noise_scale = scales
    rng = np.random.default_rng(seed)
    bias = np.float32(bias_scale * rng.standard_normal())
    means = mean_scale * rng.standard_normal((num_clients, 1, *truth.shape), dtype=np.float32)
    kept, fresh = np.float32(correlation), np.float32((1 - correlation**2) ** 0.5)

    def features(count):
        x = rng.standard_normal((num_clients, count, *truth.shape), dtype=np.float32)
        for column in range(1, truth.shape[-1] if correlation else 0):
            x[..., column] *= fresh
            x[..., column] += kept * x[..., column - 1]
        return x + means

    def outcome(x):
        noise = noise_scale * rng.standard_normal(x.shape[:2], dtype=np.float32)
        return np.tensordot(x, truth, truth.ndim) + bias + noise

    def init(key):
        limit = (6 / (truth.size + 1)) ** 0.5
        kernel = jax.random.uniform(key, truth.shape, jnp.float32, -limit, limit)
        return {"kernel": kernel, "bias": jnp.zeros((), jnp.float32)}

    train, validation = _drawn(counts, features, outcome)
    return Problem(squared_error, train, validation, init, measures)
