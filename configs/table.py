r"""Your own table: algorithms over rates, on a CSV file.

    fcojax run FILE.csv --workdir=runs/table \
        --config.target=died --config.client=hospital --config.positive_above=0

is short for fcojax run table --config.data=FILE.csv. Without a file five clients are drawn.

Each row of the file is an example, and a column names its client; with an empty --config.client=
rows are divided among ``num_clients``. Algorithms are compared at the rates with the lowest
objective, with all clients and all their examples in every round, and ten steps; the loss and the
accuracy, or R2, are those of rows held out of every client.
"""

from experiments.config.keys import sweep_config
from experiments.studies import table

EXPERIMENT = table.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        data="",  # the file; without one, five clients are drawn
        target="y",  # the column to predict
        client="client",  # the column of clients; empty: rows are divided among num_clients
        features="",  # columns, as in age,dose; all others if empty
        drop=("",),  # features to leave out, as in age,dose
        categories="",  # columns of words, reference first: ward=surgery|icu,sex=f|m; or auto
        missing="",  # further texts for a missing value, as in -999,unknown
        loss="logistic",  # linear, logistic, poisson, huber, median or squared_hinge
        positive_above=float("inf"),  # a threshold that turns numbers into two classes
        algorithms=("fed_dual_avg", "fed_mid", "scaffold", "composite_fl"),
        client_lr=(0.003, 0.01, 0.03, 0.1, 0.3),
        server_lr=(0.3, 1.0, 3.0),
        strength=(0.1,),  # strength of l1, as a share of the smallest that selects nothing
        num_rounds=100,
        num_steps=10,
        seeds=(0,),
        criterion="objective",
        criterion_rounds=10,
        held_out=0.2,  # share of each client's rows that are held out, at random by data_seed
        num_clients=10,  # number of clients for a file without clients
        concentration=0.5,  # concentration of the Dirichlet shares of each class
        sizes=(120, 90, 60, 45, 30),  # rows of the drawn clients
        dim=30,  # features of the drawn clients
    )


def quick(config):
    """Shrink the run to well under a minute on a laptop."""
    config.client_lr = (0.03, 0.1)
    config.server_lr = (1.0, 3.0)
    config.num_rounds = 50
