"""The run of ``tests.experiments.survival``: client state, sampling, losses and error feedback.

It is a lasso with FedDyn and FedAvg, whose uploads are signs and a scale with error feedback.
"""

import jax
import jax.numpy as jnp

import fcojax
from experiments.config.keys import sweep_config
from experiments.studies import lasso
from fcojax.uploads import Facts, Sent, UploadTransform, chain


def _zeros(payload):
    return payload, ()


def _signs(at, payload, residual):
    """Signs and the mean magnitude, with error feedback."""
    wanted = jax.tree.map(jnp.add, payload, residual)
    encoded = [(jnp.sign(leaf).astype(jnp.int8), jnp.mean(jnp.abs(leaf))) for leaf in wanted]
    return Sent(encoded, jax.tree.map(jnp.subtract, wanted, _decoded(at, encoded, residual)))


def _decoded(at, encoded, residual):
    return [sign.astype(size.dtype) * size for sign, size in encoded]


SIGNS = UploadTransform("signs", _zeros, _signs, _decoded, facts=Facts(feeds_back=True))


def _plan(config, plan):
    return plan._replace(uploads=chain(SIGNS, plan.uploads, fcojax.dropout(0.2)))


EXPERIMENT = lasso.EXPERIMENT._replace(plan=_plan)


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dyn", "fed_avg"),
        client_lr=(0.003, 0.01, 0.03),
        server_lr=(1.0,),
        penalty_scale=(0.5,),
        strength="typed",
        num_rounds=8000,
        eval_every=20,
        seeds=(0, 1),
        cohort_size=6,
        num_steps=5,
        batch_size=8,
        point_chunk_size=2,
        criterion="objective",
        criterion_rounds=200,
        num_clients=16,
        num_examples=32,
        num_validation=8,
        dim=64,
        num_true=16,
        mean_scale=0.1,
        correlation=0.0,
        bias_scale=1.0,
        noise_scale=1.0,
        cuts=(1e-2,),
    )


def quick(config):
    """Shrink the run to a few seconds."""
    config.num_rounds = 300
    config.seeds = (0,)
