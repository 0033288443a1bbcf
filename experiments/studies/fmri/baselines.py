"""Clients and work of the baselines: all scans pooled, and the scans of one session."""

import fcojax
from experiments.study import Config, one_client
from fcojax.algorithms import Work
from fcojax.problems import ClientData, Problem


def centralized(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return all scans as one client, with the work of a round."""
    work = fcojax.local_steps(config.centralized_steps, config.centralized_batch)
    return one_client(problem), work


def local(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the scans of one session as one client, with the work of a round."""
    own, work = config.local_client, fcojax.local_steps(config.num_steps, config.batch_size)
    if not 0 <= own < problem.train.num_clients:
        raise ValueError(
            f"local_client is {own}; pass one of the {problem.train.num_clients} sessions, from 0."
        )
    return one_client(problem, own, own + 1), work
