"""What is not federated: proximal gradient, mirror descent and dual averaging on pooled data."""

import fcojax
from experiments.study import Setting, Variant, one_client
from fcojax.algorithms import Algorithm, fed_dual_avg, fed_mid, fed_mid_osp
from fcojax.algorithms.base import takes
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror


@takes(PenalisedRates, "mirror")
def mirror_descent(loss: Loss, mirror: Mirror) -> Algorithm:
    """Composite mirror descent by the only client; its server has nothing left to do."""
    return fed_mid(loss, mirror, server_prox=False)


def _pooled(config, problem) -> Setting:
    """As many steps in a round as a client takes, each with all the examples of a cohort's step."""
    batch_size = config.batch_size and config.batch_size * config.cohort_size
    work = fcojax.local_steps(config.num_steps, batch_size)
    return Setting(one_client(problem), fcojax.everyone(), work)


def _full_batch(config, problem) -> Setting:
    """One step with everything."""
    del config
    return Setting(one_client(problem), fcojax.everyone(), fcojax.local_steps(1))


REFERENCES = {
    "prox_gd": Variant(fed_mid_osp, _full_batch),
    "mirror_descent": Variant(mirror_descent, _pooled),
    "dual_averaging": Variant(fed_dual_avg, _pooled),
}
