"""Every algorithm that takes a penalty, on heterogeneous lassos, beside proximal gradient.

    fcojax run compare --workdir=runs/compare

The first table has the final distance to the optimum with the step 1 / (K L) and with half of it,
or with the prox steps 1 and 1/2. It separates exact methods from those whose bias is proportional
to the step, and from those that solve another problem. The second table has the exchanges, and the
floats up and down, to a relative distance of 1e-6, for each method at the grid point that needs the
fewest exchanges, or ends closest if none reaches it; the third, for the same point, those to other
tolerances. Gradients are exact. The problems differ in how similar the clients' Hessians are, and
in whether the penalty is an l1 norm or a group norm.

ProxGD is centralised: an exchange is one step, with the traffic that a server needs to sum the
clients' gradients. It equals FedMiD-OSP with one local step. MimeSVRG has two exchanges per round.
FedPD with a server prox is FedADMM. Biased methods always prefer the smallest step of their grid,
and never reach the tolerance. FedSplit, which takes no penalty, and FeDualEx, for saddle points,
are not compared.
"""

from ml_collections import ConfigDict

from experiments.studies import compare
from experiments.studies.compare.rows import METHODS

EXPERIMENT = compare.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_clients, config.dim = 8, 20
    config.problems = ("own", "shared", "own_groups", "shared_groups")  # Hessians, and penalty
    config.own = ConfigDict()
    config.own.num_examples, config.own.spectrum, config.own.num_rounds = 40, (0.05, 8.0), 200
    config.own.spread, config.own.scale, config.own.num_steps = 0.6, 0.8, 10
    config.shared = ConfigDict()
    config.shared.num_examples, config.shared.spectrum = 400, (0.04, 16.0)
    config.shared.num_rounds = 1500
    config.shared.spread, config.shared.scale, config.shared.num_steps = 0.5, 0.5, 30
    config.own_groups = config.own.copy_and_resolve_references()
    config.own_groups.scale = 1.6
    config.shared_groups = config.shared.copy_and_resolve_references()
    config.shared_groups.scale = 1.0
    config.group_size = 4  # of the group norm
    config.num_true = 7
    config.methods = tuple(METHODS)
    config.seeds = (0, 1, 2)  # for randomised methods

    config.limit_rounds = 6000
    # With the safe step its distance is 3e-8 after 6,000 rounds and 4e-12 after 12,000.
    config.own_limit_rounds = ConfigDict({"mime": 12_000})
    config.limit_prox_step = 1.0
    config.tolerance = 1e-6  # for which rates are tuned
    config.tolerances = (1e-3, 1e-6, 1e-10)
    config.step_factors = tuple(2.0 ** (k / 2) for k in range(-2, 11))  # in units of 1 / (K L)
    config.server_lr = (1.0, 2.0)
    config.prox_factors = tuple(2.0 ** (k / 2) for k in range(-2, 15))  # in units of 1 / L
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.problems = ("own",)
    config.methods = ("prox_gd", "fed_mid", "fed_dual_avg", "fed_pd")
    config.limit_rounds, config.own_limit_rounds = 2000, ConfigDict()
    config.step_factors = tuple(2.0**k for k in range(5))
    config.server_lr = (1.0,)
    config.prox_factors = (4.0, 8.0, 16.0)
