"""Heterogeneous, strongly convex quadratics, with what runs are compared to."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.fedpd_feddyn.runs import METHODS, build, models_of
from fcojax.algorithms.fed_dyn import with_duals
from fcojax.engine.grid import take
from fcojax.problems import factored


class Quadratics:
    """Clients with losses x'A x/2 - c'x, as arrays and as data for the engine."""

    def __init__(self, config):
        rng = np.random.default_rng(config.data_seed)
        shape, (low, high) = (config.num_clients, config.dim), config.curvatures
        q = np.linalg.qr(rng.standard_normal((*shape, config.dim)))[0]
        self.hessians = np.einsum("mij,mj,mkj->mik", q, rng.uniform(low, high, shape), q)
        self.slopes = rng.standard_normal(shape)
        self.smoothness = float(np.linalg.eigvalsh(self.hessians)[:, -1].max())
        self.prox_step = config.prox_step
        self.first = rng.standard_normal(config.dim)
        self.arbitrary_duals = rng.standard_normal(shape)
        self.mean_hessian = self.hessians.mean(axis=0)
        self.optimum = np.linalg.solve(self.mean_hessian, self.slopes.mean(axis=0))
        rows = zip(self.hessians, self.slopes, strict=True)
        data = fcojax.from_clients([{"A": a[None], "c": c[None]} for a, c in rows])
        self.data = factored(_quadratic, data, jnp.zeros(config.dim))

    def zero_of(self, offset):
        """The point at which the mean gradient is ``offset``; the optimum for zero."""
        return self.optimum + np.linalg.solve(self.mean_hessian, offset)

    def error(self, points, target=None):
        """Distances of points to a target, the optimum by default, over the size of the optimum."""
        target = self.optimum if target is None else target
        return np.linalg.norm(points - target, axis=-1) / np.linalg.norm(self.optimum)

    def hparams(self, name, prox_steps):
        """A grid of prox steps, with rates at which gradient steps on the Lagrangian are stable."""
        rates = [1 / (self.smoothness + 1 / eta) for eta in prox_steps]
        return fcojax.zipped(METHODS[name].Hparams, client_lr=rates, prox_step=prox_steps)

    def models(self, name, solver, plan, num_looks, rounds_between, duals, drift=None):
        """The model after every block of rounds; the drift starts as the mean of the duals."""
        algorithm, rates = build(name, solver), take(self.hparams(name, [self.prox_step]), 0)
        key = jax.random.key(0)
        state = fcojax.start(algorithm, rates, jnp.asarray(self.first), self.data, key, plan)
        if name == "fed_pd":
            state = state._replace(clients=state.clients._replace(dual=jnp.asarray(duals)))
        else:
            state = with_duals(state, jnp.asarray(duals), self.data.weights)
        if drift is not None:
            state = state._replace(server=state.server._replace(drift=jnp.asarray(drift)))
        looks = models_of(algorithm, plan, num_looks, rounds_between, rates, self.data, state)
        return np.asarray(looks)


def _quadratic(x, rows):
    return 0.5 * jnp.einsum("i,nij,j->n", x, rows["A"], x) - rows["c"] @ x
