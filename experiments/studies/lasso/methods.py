"""Centralised references, and Adam or LAMB on the server, which the source's code can have."""

from typing import Any

import optax

import fcojax
from experiments.study import Config, mirror_descent, one_client
from fcojax.algorithms import (
    Work,
    fed_dual_avg,
    fed_dual_avg_opt,
    fed_mid,
    fed_mid_opt,
    fed_mid_osp,
    takes,
)
from fcojax.algorithms.base import Factory
from fcojax.problems import ClientData, Problem


def _pooled(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the pooled data as one client: the same number of steps, batches of a whole cohort."""
    batch_size = config.batch_size and config.batch_size * config.cohort_size
    return one_client(problem), fcojax.local_steps(config.num_steps, batch_size)


def _full_batch(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return one client that takes one step on all examples."""
    return one_client(problem), fcojax.local_steps(1)


def _optimised(plain: Factory, factory: Any, server: optax.GradientTransformation) -> Factory:
    @takes(plain.Hparams, *plain.geometry)
    def optimised(loss, mirror):
        return factory(loss, mirror, server=server)

    return optimised


PLANS = {"prox_gd": _full_batch, "mirror_descent": _pooled, "dual_averaging": _pooled}
METHODS = {
    "prox_gd": fed_mid_osp,
    "mirror_descent": mirror_descent,
    "dual_averaging": fed_dual_avg,
}
# Optax's defaults, because the source does not give its values.
for _name, _server in (("adam", optax.adam(1.0)), ("lamb", optax.lamb(1.0))):
    METHODS[f"fed_mid_{_name}"] = _optimised(fed_mid, fed_mid_opt, _server)
    METHODS[f"fed_dual_avg_{_name}"] = _optimised(fed_dual_avg, fed_dual_avg_opt, _server)
