"""Federated algorithms: one file, one paper, one factory."""

from fcojax.algorithms import local_solvers
from fcojax.algorithms.base import (
    Algorithm,
    ClientResult,
    Displacement,
    Known,
    NewRow,
    Public,
    takes,
)
from fcojax.algorithms.composite_fl import composite_fl
from fcojax.algorithms.ditto import ditto
from fcojax.algorithms.fair import q_fed_avg
from fcojax.algorithms.fast_fed_dual_avg import fast_fed_dual_avg
from fcojax.algorithms.fast_scaffold import fast_scaffold
from fcojax.algorithms.fe_dual_ex import fe_dual_ex, fed_mip
from fcojax.algorithms.fed_admm import fed_admm
from fcojax.algorithms.fed_avg import fed_avg, fed_avg_subgradient
from fcojax.algorithms.fed_da import fed_da
from fcojax.algorithms.fed_dr import fed_dr
from fcojax.algorithms.fed_dual_avg import fed_dual_avg, fed_dual_avg_osp
from fcojax.algorithms.fed_dual_avg_tracking import fed_dual_avg_tracking
from fcojax.algorithms.fed_dyn import fed_dyn
from fcojax.algorithms.fed_manifold import fed_manifold
from fcojax.algorithms.fed_mid import fed_mid, fed_mid_osp
from fcojax.algorithms.fed_normal_map import fed_normal_map
from fcojax.algorithms.fed_opt import fed_opt
from fcojax.algorithms.fed_opt_composite import fed_dual_avg_opt, fed_mid_opt
from fcojax.algorithms.fed_pd import fed_pd
from fcojax.algorithms.fed_prox import fed_prox
from fcojax.algorithms.fed_split import fed_split
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import Batch, Local, mean_gradient, mean_loss
from fcojax.algorithms.local_sgd import fed_gd, local_sgd
from fcojax.algorithms.mc_fed_dual_avg import mc_fed_dual_avg
from fcojax.algorithms.mime import mime
from fcojax.algorithms.multi_task import multi_task
from fcojax.algorithms.partial_sharing import partial_sharing
from fcojax.algorithms.prox_skip import prox_skip
from fcojax.algorithms.r_fed_svrg import r_fed_svrg
from fcojax.algorithms.riemannian import r_fed_avg, r_fed_prox
from fcojax.algorithms.scaffold import scaffold
from fcojax.algorithms.work import Work, local_epochs, local_steps

__all__ = [
    "Algorithm",
    "Batch",
    "ClientResult",
    "Displacement",
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
    "multi_task",
    "partial_sharing",
    "prox_skip",
    "q_fed_avg",
    "r_fed_avg",
    "r_fed_prox",
    "r_fed_svrg",
    "scaffold",
    "takes",
]
