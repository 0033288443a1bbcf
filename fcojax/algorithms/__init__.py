"""Federated algorithms: a table of methods, of three parts each, and the few that are none."""

from fcojax.algorithms import local_solvers, parts
from fcojax.algorithms.averages import (
    fed_avg,
    fed_avg_subgradient,
    fed_gd,
    fed_mid,
    fed_mid_osp,
    fed_prox,
    local_sgd,
)
from fcojax.algorithms.base import (
    Algorithm,
    ClientResult,
    Displacement,
    Facts,
    Known,
    NewRow,
    Public,
    takes,
)
from fcojax.algorithms.controls import (
    composite_fl,
    fast_scaffold,
    fed_dual_avg_tracking,
    fed_normal_map,
    scaffold,
)
from fcojax.algorithms.dual_averages import fed_dual_avg, fed_dual_avg_osp
from fcojax.algorithms.extragradient import fe_dual_ex, fed_mip
from fcojax.algorithms.fed_da import fed_da
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import Batch, Local, mean_gradient, mean_loss
from fcojax.algorithms.manifolds import fed_manifold, r_fed_avg, r_fed_prox
from fcojax.algorithms.optimisers import fed_dual_avg_opt, fed_mid_opt, fed_opt
from fcojax.algorithms.personalised import ditto, partial_sharing
from fcojax.algorithms.skipping import fed_pd, prox_skip
from fcojax.algorithms.splittings import fed_admm, fed_dr, fed_dyn, fed_split
from fcojax.algorithms.strongly_convex import fast_fed_dual_avg, mc_fed_dual_avg
from fcojax.algorithms.two_rounds import mime, r_fed_svrg
from fcojax.algorithms.work import Work, local_epochs, local_steps

__all__ = [
    "Algorithm",
    "Batch",
    "ClientResult",
    "Displacement",
    "Facts",
    "Known",
    "Local",
    "NewRow",
    "Public",
    "Work",
    "composite_fl",
    "ditto",
    "fast_fed_dual_avg",
    "fast_scaffold",
    "fe_dual_ex",
    "fed_admm",
    "fed_avg",
    "fed_avg_subgradient",
    "fed_da",
    "fed_dr",
    "fed_dual_avg",
    "fed_dual_avg_opt",
    "fed_dual_avg_osp",
    "fed_dual_avg_tracking",
    "fed_dyn",
    "fed_gd",
    "fed_manifold",
    "fed_mid",
    "fed_mid_opt",
    "fed_mid_osp",
    "fed_mip",
    "fed_normal_map",
    "fed_opt",
    "fed_pd",
    "fed_prox",
    "fed_split",
    "local_epochs",
    "local_sgd",
    "local_solvers",
    "local_steps",
    "mc_fed_dual_avg",
    "linear_steps",
    "mean_gradient",
    "mean_loss",
    "mime",
    "partial_sharing",
    "parts",
    "prox_skip",
    "r_fed_avg",
    "r_fed_prox",
    "r_fed_svrg",
    "scaffold",
    "takes",
]
