"""Dual averaging on all scans pooled, and on the scans of one session."""

import numpy as np

import fcojax
from experiments.study import Setting


def centralized(config, problem):
    """All scans pooled, as one client."""
    work = fcojax.local_steps(config.centralized_steps, config.centralized_batch)
    return Setting(_one_client(problem, 0, problem.train.num_clients), fcojax.everyone(), work)


def local(config, problem):
    """The scans of one session."""
    own, work = config.local_client, fcojax.local_steps(config.num_steps, config.batch_size)
    if not 0 <= own < problem.train.num_clients:
        raise ValueError(
            f"local_client is {own}; pass one of the {problem.train.num_clients} sessions, from 0."
        )
    return Setting(_one_client(problem, own, own + 1), fcojax.everyone(), work)


def _one_client(problem, first, last):
    """The clients from ``first`` to just before ``last`` as one."""
    bounds = np.asarray(problem.train.offsets)[[first, last]]
    rows = slice(*bounds.tolist())
    examples = {name: np.asarray(values)[rows] for name, values in problem.train.examples.items()}
    return fcojax.from_clients([examples])
