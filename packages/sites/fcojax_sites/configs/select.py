r"""A sparse model from a user's file: path, held-out losses, named coefficients and traffic.

    fcojax run select --workdir=runs/select

``--config.data_dir=FILE`` names an npz, CSV, Parquet, Excel or LIBSVM file (or the folder with it)
in which every row has a site; without it, five sites are drawn. For example, with four hospitals,
each left out once:

    fcojax run select --workdir=runs/heart \
        --config.data_dir=heart_disease.npz --config.features=X --config.target=num \
        --config.client=hospital --config.names=feature_names,hospital_names \
        --config.positive_above=0 --config.drop=slope,ca,thal

Missing values (empty, NA, N/A, #N/A, NaN, NULL, None, ? or a dot, and what ``missing`` adds) become
the feature's mean, and rows without a target are left out; both are counted on the page.

With an empty ``--config.client=`` a file without sites is divided among ``num_clients``: each class
in Dirichlet shares, which are uneven if ``concentration`` is small.

    fcojax run select --workdir=runs/a9a \
        --config.data_dir=a9a.npz --config.features=train --config.target=train_labels \
        --config.client= --config.positive_above=0

Survival times, stratified by site, come from a CSV or Parquet file:

    fcojax run select --workdir=runs/survival --config.data_dir=FILE.csv \
        --config.loss=cox --config.time=months --config.event=died

Sites are weighted by their rows, as with ``weights="examples"``. Strengths decrease from the
smallest one that selects no feature, which one exchange of gradients determines. ``by`` is the
selection rule: each ``site`` left out, folds of ``sites`` or ``examples``, or ``aic``, ``bic``,
``ebic``.
"""

from ml_collections import ConfigDict, config_dict

from fcojax_sites.studies import select

EXPERIMENT = select.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir = ""  # the file, or the folder with it; without one, five sites are drawn
    config.features = ""  # columns, as in age,dose; all others if empty; in an npz file, an array
    config.target = "y"  # the column, or array, to predict
    config.client = "client"  # the column of sites; empty: rows are divided among num_clients
    config.num_clients = 10  # number of clients for a file without sites
    config.concentration = 0.5  # concentration of the Dirichlet shares of each class
    config.names = ""  # in an npz file: the array of feature names, and after a comma of site names
    config.missing = ""  # further texts for a missing value, as in -999,unknown
    config.categories = ""  # columns of words, reference first: ward=surgery|icu,sex=f|m
    config.units = ""  # changes for which effects are reported, as in age=10; 1 for others
    config.drop = ("",)  # features to leave out, as in age,dose
    config.positive_above = float("inf")  # a threshold that turns numbers into two classes

    config.loss = "logistic"  # linear, logistic, poisson, huber, median, squared_hinge or cox
    config.time = "time"  # for loss cox: the column of survival times, in place of target
    config.event = "event"  # for loss cox: the column with 1 for an event and 0 if censored
    config.l1_fraction = 1.0  # share of l1 in the elastic net; 1 is the lasso
    config.groups = ""  # columns selected together: a CSV file, or lab=lab_*|crp,vitals=bp_?
    config.group_fraction = 1.0  # share of the groups' penalty; the rest is l1; must be 1 for trend
    config.group_penalty = "norm"  # penalty on the columns of a group: norm, slope, fused or trend
    config.by = "site"  # selection rule: site, sites, examples, aic, bic or ebic; see above
    config.nonzeros = 0  # number of features to select, in place of by; 0 for by
    config.num_folds = 5  # number of folds if by is sites or examples
    config.num_draws = 1  # random divisions into folds
    config.one_standard_error = True  # choose the largest strength within one of the lowest loss

    config.num_strengths = 40  # number of strengths on the path
    config.least = 0.01  # the last strength as a share of the first
    config.tolerance = 1e-5  # for the optimality conditions, in units of the first strength
    config.max_rounds = 5000  # largest number of rounds for a strength
    config.method = "rounds"  # rounds of a simulation, or sums: exchanges of moments
    config.superlink = ""  # sites as SuperNodes: HOST:PORT of a SuperLink, or here to start one
    config.sites = ""  # names of the SuperNodes' sites, as in Antwerp,Bern,Cork
    config.timeout = 600.0  # seconds to wait for SuperNodes, and for an answer
    config.insecure = True  # whether messages to the SuperLink are not encrypted
    config.root_certificates = ""  # a file such as ca.crt, as SuperNodes have it; encrypts
    config.codec = config_dict.placeholder(str)  # compression of uploads, as in top_k:0.1,ef21
    config.seed = 0  # seed of the draws of folds

    config.data_seed = 0  # seed of drawn sites, and of the division of a file without sites
    config.sizes = (120, 90, 60, 45, 30)  # rows of the drawn sites
    config.dim = 30  # features of the drawn sites
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.num_strengths = 8
    config.least = 0.05
    config.max_rounds = 500
