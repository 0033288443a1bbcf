"""Principal components of a small heterogeneous federation, shared by the tests of manifolds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Plan
from fcojax.engine.stepper import start as first_state
from fcojax.transforms import stiefel
from tests.support.federations import RAGGED

NUM_CLIENTS, NUM_ROWS, DIM, RANK = 10, 60, 30, 5


def pca(x, rows):
    """f(x; a) = -|x^T a|^2 / 2 for each row a, so that F_m(x) = -tr(x^T S_m x) / 2."""
    return -0.5 * jnp.sum((rows @ x) ** 2, axis=1)


def polar(y):
    left, _, right = np.linalg.svd(y, full_matrices=False)
    return left @ right


@functools.cache
def problem():
    """Return the clients' rows and a start point; the spectrum has a gap.

    Every client has 60 rows: a sample of the common covariance plus a sample of rank 2.
    """
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
    spectrum = np.concatenate([np.linspace(2.0, 1.5, 5), np.linspace(0.7, 0.05, 25)])
    clients = []
    for _ in range(NUM_CLIENTS):
        common = rng.standard_normal((NUM_ROWS, DIM)) @ (np.sqrt(spectrum)[:, None] * axes.T)
        own = rng.standard_normal((DIM, 2))
        own /= np.linalg.norm(own, axis=0)
        clients.append(common + rng.standard_normal((NUM_ROWS, 2)) @ own.T)
    return clients, polar(rng.standard_normal((DIM, RANK)))


def clients():
    return problem()[0]


def start():
    return problem()[1]


DATA = fcojax.from_clients(clients())  # when imported: a cache filled inside a jit keeps tracers


def data():
    return DATA


@functools.cache
def covariances():
    return np.stack([rows.T @ rows / len(rows) for rows in clients()])


@functools.cache
def optimum():
    """Return f* and an orthonormal basis of the leading eigenspace."""
    values, vectors = np.linalg.eigh(covariances().mean(axis=0))
    return -values[-RANK:].sum() / 2, vectors[:, -RANK:]


def objective(x):
    return -np.trace(x.T @ covariances().mean(axis=0) @ x) / 2


def tangent(x, v):
    inner = x.T @ v
    return v - x @ (inner + inner.T) / 2


def slope(x, covariance=None):
    """Return the Riemannian gradient at x on the Stiefel manifold."""
    covariance = covariances().mean(axis=0) if covariance is None else covariance
    return tangent(x, -covariance @ x)


def slope_norms(models):
    """Return |grad f| at each of the models."""
    return np.array([np.linalg.norm(slope(x.astype(np.float64))) for x in models])


def feasibility(models):
    """Return the largest Frobenius norm of x^T x - I, computed in float64."""
    models = np.asarray(models, np.float64)
    grams = np.swapaxes(models, -1, -2) @ models
    return np.linalg.norm(grams - np.eye(models.shape[-1]), axis=(-2, -1)).max()


svd_stiefel = stiefel(method="svd")  # compiles three times as fast as the default
everyone = fcojax.everyone()


@functools.cache
def algorithm(name, manifold=svd_stiefel, loss=pca, **options):
    """Return the named algorithm; it is cached, because a new one would be compiled again."""
    return getattr(algorithms, name)(loss, manifold, **options)


SEEN = fcojax.StateObserver(lambda hparams, state, context: {"state": state._replace(key=())})


def states(
    chosen,
    rates,
    num_rounds,
    *,
    work,
    params=None,
    population=None,
    first=None,
    cohort=everyone,
    every=1,
):
    """Return all states after every ``every`` rounds, and the metrics in between.

    The run starts at ``params``, or from the state ``first``.
    """
    population = data() if population is None else population
    rates = as_arrays(rates)
    if first is None:
        params = jax.tree.map(jnp.asarray, start() if params is None else params)
        first = first_state(chosen, rates, params, population, jax.random.key(0), work)
    given = chosen, rates, first, population, Plan(work, cohort)
    _, history = fcojax.advance(*given, num_rounds=num_rounds, eval_every=every, observe=SEEN)
    history = jax.tree.map(np.asarray, history)
    return history.pop("state"), history


def small_clients(dim=5):
    """Return ragged, heterogeneous rows."""
    rng = np.random.default_rng(3)
    return [rng.standard_normal((n, dim)) * rng.uniform(0.3, 1.5, dim) for n in RAGGED]


SMALL_WEIGHTS = (2.0, 1.0, 0.5, 3.0, 1.5)
SMALL_START = polar(np.random.default_rng(4).standard_normal((5, 2)))
