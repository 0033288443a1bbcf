"""Centralised references: proximal gradient, mirror descent and dual averaging."""

import fcojax
from experiments.study import Config, mirror_descent, one_client
from fcojax.algorithms import Work, fed_dual_avg, fed_mid_osp
from fcojax.problems import ClientData, Problem


def _pooled(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the pooled data as one client: the same number of steps, batches of a whole cohort."""
    batch_size = config.batch_size and config.batch_size * config.cohort_size
    work = fcojax.local_steps(config.num_steps, batch_size)
    return one_client(problem), work


def _full_batch(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return one client that takes one step on all examples."""
    return one_client(problem), fcojax.local_steps(1)


REFERENCES = {
    "prox_gd": fed_mid_osp,
    "mirror_descent": mirror_descent,
    "dual_averaging": fed_dual_avg,
}
PLANS = {"prox_gd": _full_batch, "mirror_descent": _pooled, "dual_averaging": _pooled}
