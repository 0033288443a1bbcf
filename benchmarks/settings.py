"""The library's side of a workload: algorithm, data, plan, and the draws of its runs."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks.replay import draws
from benchmarks.workloads import Workload, start
from fcojax.transforms import euclidean, l1, named, on_subtree


def setting(workload: Workload, algorithm: str, x: np.ndarray, y: np.ndarray):
    """Build the algorithm, its hyperparameters, the first model and the data as a user would."""
    data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
    loss = losses(workload.model)
    if workload.model == "logistic":
        # The library's own problem keeps products of rows, with which local steps are faster.
        problem = fcojax.problems.logistic(data)
        loss, data = problem.loss, problem.train
    penalty = on_subtree(l1(), named("kernel"))
    known = {"penalty": penalty, "mirror": euclidean(penalty)}
    factory = getattr(fcojax.algorithms, algorithm)
    geometry = (known[name] for name in getattr(factory, "geometry", ()))
    chosen = factory(loss, *geometry)
    hparams = factory.Hparams(client_lr=workload.client_lr)
    if "penalty_scale" in hparams._fields:
        hparams = hparams._replace(penalty_scale=workload.penalty_scale)
    params = jax.tree.map(jax.numpy.asarray, start(workload))
    return chosen, hparams, params, data


def ours(workload: Workload, algorithm: str, x: np.ndarray, y: np.ndarray):
    """Return a function ``key -> model`` that runs the library with the data on the device."""
    chosen, hparams, params, data = setting(workload, algorithm, x, y)
    how = fcojax.Plan(*plan(workload))
    data = fcojax.devices.spread(chosen, hparams, params, data, plan=how)
    jax.block_until_ready(data.examples)

    def run(key):
        num = workload.num_rounds
        given = chosen, hparams, params, data, key, how
        return fcojax.run(*given, num_rounds=num, eval_every=num)[0]

    return run


def grid_of(hparams, pairs: np.ndarray):
    """Return a grid over pairs of client and server rate, at these other hyperparameters."""
    others = {name: [value] * len(pairs) for name, value in hparams._asdict().items()}
    rates = dict(zip(("client_lr", "server_lr"), pairs.T.tolist(), strict=True))
    return fcojax.grid.zipped(type(hparams), **others | rates)


def plan(workload: Workload):
    """Return the local work of a client and the sampler."""
    if workload.epoch:
        work = fcojax.local_epochs(1, workload.batch_size)
    else:
        work = fcojax.local_steps(workload.num_steps, workload.batch_size)
    if workload.cohort_size is None:
        return work, fcojax.everyone()
    return work, fcojax.uniform_cohort(cohort_size=workload.cohort_size)


def losses(model: str):
    """Return the loss of a linear model, which gives one number per example."""

    def scores(params, rows):
        return rows["x"] @ params["kernel"] + params["bias"]

    def least_squares(params, rows):
        return (scores(params, rows) - rows["y"]) ** 2

    def logistic(params, rows):
        score = scores(params, rows)
        return jnp.logaddexp(0, score) - rows["y"] * score

    def softmax(params, rows):
        score = scores(params, rows)
        picked = jnp.take_along_axis(score, rows["y"][:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(score, axis=1) - picked

    return {"least_squares": least_squares, "logistic": logistic, "softmax": softmax}[model]


def drawn(workload: Workload, key_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cohorts and minibatches that a run with this key draws in every round."""
    names = np.zeros((workload.num_clients * workload.num_examples, 1), np.float32)
    data = fcojax.from_rows(names, [workload.num_examples] * workload.num_clients)
    chosen = fcojax.Plan(*plan(workload))
    rounds = jnp.arange(workload.num_rounds, dtype=jnp.int32)

    @jax.jit
    def of_all(data, rounds):
        key = jax.random.key(key_seed)
        return jax.lax.map(lambda index: draws(chosen, data, key, index), rounds)

    members, _, indices, weights = map(np.asarray, of_all(data, rounds))
    assert (weights == 1).all(), "the other side does not support padding"
    return members, indices


def store_draws(workload: Workload, key_seed: int, path: pathlib.Path) -> None:
    """Write the cohorts and the minibatches to a file, for a process without JAX."""
    members, indices = drawn(workload, key_seed)
    np.savez(path, members=members, indices=indices)
