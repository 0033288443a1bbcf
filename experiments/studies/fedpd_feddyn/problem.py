"""Heterogeneous, strongly convex quadratics, their solutions, and runs of the two methods."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.shared import swept
from experiments.study import Config, observe_model
from fcojax import Plan
from fcojax.algorithms import Algorithm, Work, fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.extend import take
from fcojax.problems import factored, factored_loss
from fcojax.types import Array, Params, PyTree

METHODS = {"fed_pd": fed_pd, "fed_dyn": fed_dyn}
_SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}


def build(name: str, solver: str) -> Algorithm:
    """Return the algorithm of this name with this local solver."""
    return METHODS[name](factored_loss, solver=_SOLVERS[solver])


class Quadratics:
    """Clients with losses x'A x/2 - c'x, as arrays and as data for the engine."""

    def __init__(self, config: Config):
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

    def zero_of(self, offset: np.ndarray) -> np.ndarray:
        """Return the point at which the mean gradient is ``offset``; the optimum for zero."""
        return self.optimum + np.linalg.solve(self.mean_hessian, offset)

    def error(self, points: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
        """Return distances to a target, by default the optimum, over the norm of the optimum."""
        target = self.optimum if target is None else target
        return np.linalg.norm(points - target, axis=-1) / np.linalg.norm(self.optimum)

    def hparams(self, name: str, prox_steps: Sequence[float]) -> Any:
        """Return a grid of prox steps; the rates keep gradient steps on the Lagrangian stable."""
        rates = [1 / (self.smoothness + 1 / eta) for eta in prox_steps]
        return fcojax.grid.zipped(METHODS[name].Hparams, client_lr=rates, prox_step=prox_steps)

    def errors(
        self,
        algorithm: Algorithm,
        grid: Any,
        seeds: Sequence[int],
        plan: Plan | Work,
        **rounds: int,
    ) -> np.ndarray:
        """Return relative errors over the rounds, axes [points, seeds, evaluations]."""
        given = algorithm, grid, jnp.asarray(self.first), self.data
        optimum = jnp.asarray(self.optimum)
        watched = {"observe": _relative_error, "context": optimum}
        return swept(*given, seeds=seeds, plan=plan, **watched, **rounds)["error"]

    def models(
        self,
        name: str,
        solver: str,
        plan: Plan,
        num_rounds: int,
        duals: np.ndarray,
        drift: np.ndarray | None = None,
        eval_every: int = 1,
    ) -> np.ndarray:
        """Return the model at every evaluation; ``drift`` is the mean of the duals by default."""
        algorithm, rates = build(name, solver), take(self.hparams(name, [self.prox_step]), 0)
        key = jax.random.key(0)
        state = fcojax.start(algorithm, rates, jnp.asarray(self.first), self.data, key, plan)
        first, shares = jnp.asarray(duals), self.data.weights / jnp.sum(self.data.weights)
        state = state._replace(clients=state.clients._replace(dual=first))
        if name == "fed_dyn":
            mean = jnp.tensordot(shares.astype(first.dtype), first, 1) if drift is None else drift
            state = state._replace(server=state.server._replace(drift=jnp.asarray(mean)))
        rounds = {"num_rounds": num_rounds, "eval_every": eval_every}
        given = algorithm, rates, state, self.data, plan
        return np.asarray(fcojax.advance(*given, observe=observe_model, **rounds)[1]["model"])


def _relative_error(hparams: Any, model: Params, optimum: Array) -> dict[str, Array]:
    return {"error": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}


def _quadratic(x: Array, rows: PyTree) -> Array:
    return 0.5 * jnp.einsum("i,nij,j->n", x, rows["A"], x) - rows["c"] @ x
