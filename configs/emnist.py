r"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5.

    python -m experiments.run --config=configs/emnist.py --workdir=runs/emnist
    python -m experiments.run --config=configs/emnist.py --workdir=runs/emnist_mnist \
        --config.data_dir=DIR --config.constraint=l2 --config.model=mlp

Softmax regression, or a network, whose dense kernels each lie in an l1 or an l2 ball; biases and
convolutions are free. 36 writers a round, one epoch of batch 20, 200 rounds. Every algorithm over
a 5 x 5 grid of rates, shown at the rates with the least training loss over the last 50 rounds.
Three minutes on two cores without ``DIR``.

``DIR`` holds ``fed_emnist_digitsonly_train.h5`` and ``..._test.h5`` of TensorFlow Federated, of
which a tenth of the writers is read; or else MNIST with the writers of QMNIST, of whom those of
the test set judge. Without it, a synthetic softmax problem of the same number of classes.

The paper's main text states no outcome and gives neither the radii nor the rates. The radius, 10,
binds on all of these problems for l1; it is the one value of ``penalty_scale``.
"""

import pathlib

import jax
import jax.numpy as jnp

from experiments.report.claims import Claim
from experiments.report.plots import Panel, style
from experiments.study import Sweep
from experiments.sweep_config import sweep_config
from fcojax.problems import Problem, loaders, softmax, synthetic_softmax
from fcojax.problems.clients import ids_of
from fcojax.transforms import l1_ball, l2_ball, named, on_subtree, per_leaf

PANELS = (
    Panel("loss", "training loss", log=True),
    Panel("accuracy", "accuracy on validation"),
    Panel("validation_loss", "loss on validation", log=True),
    Panel("violation", "excess over the radius, share of it"),
)
_BALLS = {"l1": l1_ball, "l2": l2_ball}
_MODELS = ("softmax", "mlp", "cnn")
_NUM_CLASSES = 10


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"),
        client_lr=(0.003, 0.01, 0.03, 0.1, 0.3),
        server_lr=(0.1, 0.3, 1.0, 3.0, 10.0),
        penalty_scale=(10.0,),
        num_rounds=200,
        cohort_size=36,
        num_epochs=1,
        batch_size=20,
        criterion="loss",
        criterion_rounds=50,
        constraint="l1",
        model="softmax",
        num_hidden=200,
        share_of_writers=0.1,
        num_clients=100,
        dim=60,
        cuts=(1e-4, 1e-2),
    )


def quick(config):
    """Shrinks the run to under a minute on a laptop."""
    config.client_lr = (0.01, 0.1)
    config.server_lr = (1.0,)
    config.num_rounds = 40
    config.criterion_rounds = 20
    config.seeds = (0,)
    config.cohort_size = 5
    config.num_clients = 10
    config.dim = 20
    config.num_hidden = 16


def problem(config):
    """The model on its data, from a feasible start; a measure is the excess over the radius."""
    base = _model(config, *_data(config))
    if len(config.penalty_scale) != 1:
        raise ValueError(
            f"penalty_scale is {tuple(config.penalty_scale)}; pass one radius a run, because the "
            "violation is measured against it."
        )
    (radius,) = config.penalty_scale
    chosen = _constrained(config)

    def measures(params):
        kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)
                   if chosen(path, leaf)]  # fmt: skip
        norms = jnp.stack([_norm(config.constraint, kernel) for kernel in kernels])
        violation = jnp.maximum(jnp.max(norms) / radius - 1, 0)
        return base.measures(params) | {"violation": violation}

    ball = penalty(config)
    return base._replace(init=lambda key: ball.prox(base.init(key), 0.0, radius), measures=measures)


def penalty(config):
    """One ball for each dense kernel."""
    if config.constraint not in _BALLS:
        raise ValueError(f"constraint is {config.constraint!r}; pass {' or '.join(_BALLS)}.")
    return on_subtree(per_leaf(_BALLS[config.constraint]()), _constrained(config))


def claims(config, rows, summary):
    """Every model that the server holds is feasible, up to the rounding of single precision."""
    del config
    result = []
    for label in summary["algorithms"]:
        seen = [
            row["violation"]
            for row in rows
            if row["algorithm"] == label and row["round"] > 0 and row["violation"] is not None
        ]
        text = f"{style(label)[0]}: largest excess over the radius, share of it"
        result.append(Claim(text, max(seen, default=float("nan")), 1e-5, at_least=False))
    return result


def _constrained(config):
    """Which leaves lie in a ball."""
    if config.model == "softmax":
        return named("kernel")
    from fcojax.problems.networks import dense_kernels

    return dense_kernels


def _norm(constraint, kernel):
    size = jnp.abs(kernel)
    return jnp.sum(size) if constraint == "l1" else jnp.sqrt(jnp.sum(size**2))


def _data(config):
    if not config.data_dir:
        drawn = synthetic_softmax(
            num_clients=config.num_clients,
            dim=config.dim,
            num_classes=_NUM_CLASSES,
            seed=config.data_seed,
        )
        return drawn.train, drawn.validation
    stem = pathlib.Path(config.data_dir) / "fed_emnist_digitsonly"
    if stem.with_name(f"{stem.name}_train.h5").exists():
        train = loaders.by_client(
            loaders.emnist(f"{stem}_train.h5", share=config.share_of_writers), "examples"
        )
        test = loaders.emnist(f"{stem}_test.h5", client_ids=ids_of(train).tolist())
        return train, loaders.by_client(test, "examples")
    return tuple(
        loaders.by_client(loaders.mnist(config.data_dir, split), "examples")
        for split in ("train", "test")
    )


def _model(config, train, validation) -> Problem:
    options = {"num_classes": _NUM_CLASSES, "cuts": tuple(config.cuts)}
    if config.model == "softmax":
        return softmax(train, validation, **options)
    if config.model not in _MODELS:
        raise ValueError(f"model is {config.model!r}; pass {', '.join(_MODELS)}.")
    from fcojax.problems.networks import conv_net, network, two_layer

    num_features = train.examples["x"].shape[1]
    if config.model == "mlp":
        build = two_layer(num_features, config.num_hidden, _NUM_CLASSES)
    elif num_features == 28 * 28:
        build = conv_net(num_hidden=config.num_hidden, num_classes=_NUM_CLASSES)
    else:
        raise ValueError(f"model=cnn needs images of 28 x 28, not {num_features} features; pass "
                         "data_dir, or model=mlp.")  # fmt: skip
    return network(build, train, validation, **options)


EXPERIMENT = Sweep(
    title="Digits by writer, every dense kernel in a ball",
    problem=problem,
    penalty=penalty,
    panels=PANELS,
    claims=claims,
    solve_optimum=False,  # of 60,000 images to single precision: longer than all runs together
)
