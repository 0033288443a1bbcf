"""Dual averaging on all scans pooled, and on the scans of one session."""

import fcojax
from experiments.study import Setting, one_client


def centralized(config, problem):
    """All scans pooled, as one client."""
    work = fcojax.local_steps(config.centralized_steps, config.centralized_batch)
    return Setting(one_client(problem), fcojax.everyone(), work)


def local(config, problem):
    """The scans of one session."""
    own, work = config.local_client, fcojax.local_steps(config.num_steps, config.batch_size)
    if not 0 <= own < problem.train.num_clients:
        raise ValueError(
            f"local_client is {own}; pass one of the {problem.train.num_clients} sessions, from 0."
        )
    return Setting(one_client(problem, own, own + 1), fcojax.everyone(), work)
