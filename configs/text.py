"""Prediction of the next character by a sparse recurrent network, with each text as a client.

    fcojax run text --workdir=runs/text --config.data_dir=DIR

``DIR`` holds text files, one for each client, such as the lines of each role of a play. A file is
cut into sequences of `length` characters, of which every fifth is for validation. Without ``DIR``
every client has a text drawn from its own Markov chain; half of each chain is common to all
clients. FedDualAvg and FedMiD-OSP have an l1 norm on the kernel of the dense layer; FedAvg has no
penalty. There are no claims.
"""

from experiments.config.keys import sweep_config
from experiments.studies import text

EXPERIMENT = text.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_avg", "fed_dual_avg", "fed_mid_osp"),
        client_lr=(0.3, 1.0),
        server_lr=(1.0,),
        penalty_scale=(1e-4,),
        seeds=(0,),
        num_rounds=100,
        cohort_size=5,
        num_epochs=1,
        batch_size=4,
        criterion="validation_loss",
        criterion_rounds=20,
        data_dir="",  # a folder with a text file for each client
        network="char_gru",  # or char_lstm or transformer
        num_units=64,  # units of the layer
        length=20,  # characters per sequence
        num_clients=20,  # number of drawn texts
        num_characters=800,  # length of a drawn text
        num_letters=12,  # number of letters in drawn texts
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.client_lr = (1.0,)
    config.num_rounds = 20
    config.num_units, config.num_clients, config.num_characters = 8, 6, 200
