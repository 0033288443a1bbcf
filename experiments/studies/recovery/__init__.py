"""Statistical recovery: Bao, Crawshaw, Luo and Liu (ICML 2022), section 6 and the authors' code."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.claims import OURS, Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary, by_seed
from experiments.report.summary import Criterion, at_best, first_rounds, summarise
from experiments.studies.shared import with_support
from experiments.study import Config, Sweep, from_config, on_kernel
from fcojax import algorithms, datasets, problems
from fcojax.algorithms import takes
from fcojax.problems import Problem
from fcojax.problems.linear_models import squared_error
from fcojax.transforms import l1, l1_ball, named, nuclear, nuclear_ball, on_subtree
from fcojax.types import NonNegative, Positive

_BASELINES = ("fed_mid", "fed_dual_avg")
_NEW = ("fast_fed_dual_avg", "mc_fed_dual_avg")
_ONE = "c_fed_dual_avg"
_NUM_CLASSES = 10
_PAPER = "Bao, Crawshaw, Luo and Liu (ICML 2022), experiments"

STATEMENTS = """
rounds | Fast- and MC-FedDualAvg converge faster than FedMiD and FedDualAvg{where}
    | further rounds of the better baseline to an error of {target} | > 0
error | Fast- and MC-FedDualAvg recover the truth more accurately{where}
    | error of the better baseline beyond theirs, at the end | > 0
stages | several stages are faster than one{where} | further rounds of C-FedDualAvg | > 0
validation_loss | Fast- and MC-FedDualAvg end at a lower loss{where}
    | lead over the better baseline | > 0
accuracy | Fast- and MC-FedDualAvg end at a higher accuracy{where}
    | lead over the better baseline | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on errors, and those on losses and accuracies where no truth is known.

    They are decided at the source's rates, which are smaller for the two baselines. At each
    method's best of several common rates they are our expectations, because the source makes no
    claim there. All are paired over the seeds, and compare with the better baseline of each seed.
    """
    found, target = [], config.get("target_error", 0.0)
    signs = {"error": 1} if target else {"validation_loss": 1, "accuracy": -1}
    for head, where, shown in _shown(config, rows, summary):
        numbers: dict[str, object] = {
            measure: _leads({name: sign * _ends(own, measure) for name, own in shown.items()})
            for measure, sign in signs.items()
        }
        if target:
            to = "error", target, "min", config.num_rounds
            rounds = {name: first_rounds(own, *to) for name, own in shown.items()}
            numbers["rounds"] = _leads(rounds)
            if _ONE in rounds:
                numbers["stages"] = rounds[_ONE] - rounds["mc_fed_dual_avg"]
        found += judged(head + STATEMENTS.format(where=where, target=f"{target:g}"), numbers)
    return found


def _leads(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return by how much each new method is below the lower baseline of each seed."""
    least = np.min([values[name] for name in _BASELINES], axis=0)
    return {name: least - values[name] for name in _NEW}


def _ends(rows: list[Row], measure: str) -> np.ndarray:
    """Return the last value of each seed, or infinity if there is none."""
    ends = [max(own, key=lambda row: row["round"])[measure] for own in by_seed(rows).values()]
    return np.array([np.inf if end is None else end for end in ends])


def _shown(
    config: Config, rows: list[Row], summary: Summary
) -> Iterator[tuple[str, str, dict[str, list[Row]]]]:
    """Yield who says it, at which rates, and each method's rows there.

    The rates are the source's, in single precision as in the rows, and the best common ones.
    """
    names = (*_BASELINES, *_NEW, _ONE)
    entries = {name: entry for name, entry in summary["algorithms"].items() if name in names}
    if not {*_BASELINES, *_NEW} <= entries.keys():
        return
    own = {name: [row for row in rows if row["algorithm"] == name] for name in entries}
    rates = {name: {row["client_lr"] for row in found} for name, found in own.items()}
    theirs, best, shared = {}, {}, set.intersection(*rates.values())
    for name, entry in entries.items():
        target = config.source_lr.get(name, entry["best"]["client_lr"])
        near = [rate for rate in rates[name] if abs(rate / target - 1) < 1e-3]
        theirs[name] = entry["best"] | {"client_lr": near[0] if near else target}
        if len(shared) > 1:
            common = [row for row in own[name] if row["client_lr"] in shared]
            judge = Criterion(**entry["criterion"])
            best[name] = summarise(common, list(entry["best"]), judge)["best"]
    places = ((_PAPER, "", theirs), (OURS, ", at the best of equal rates", best))
    for who, where, points in places:
        shown = {name: at_best(own[name], name, point) for name, point in points.items()}
        if shown and all(shown.values()):
            yield who, where, shown


def sparse(config: Config) -> Problem:
    """Return a lasso with true weights 1 on the first features; clients differ in feature means."""
    drawn = from_config(problems.lasso, config, bias_scale=0.0, seed=config.data_seed)
    truth = (jnp.arange(config.dim) < config.num_true).astype(jnp.float32)
    return with_support(_without_bias(drawn, truth), config.cuts[0])


def matrices(config: Config) -> Problem:
    """Return low-rank estimation of a matrix with ones on the first part of its diagonal."""
    options = {"shape": (config.side, config.side), "bias_scale": 0.0, "seed": config.data_seed}
    drawn = from_config(problems.low_rank, config, **options)
    truth = jnp.diag((jnp.arange(config.side) < config.true_rank).astype(jnp.float32))
    return _without_bias(drawn, truth)


def _without_bias(drawn: Problem, truth: jax.Array) -> Problem:
    """Return the problem with half the squared error, a random start, and the error's norm."""

    def loss(params, rows):
        return squared_error(params | {"bias": jnp.zeros((), params["kernel"].dtype)}, rows) / 2

    def measures(params):
        error = jnp.sqrt(jnp.sum((params["kernel"] - truth) ** 2))
        return drawn.measures(params) | {"error": error}

    def init(key):
        return {"kernel": jax.random.normal(key, truth.shape, jnp.float32)}

    return drawn._replace(loss=loss, init=init, measures=measures)


def digits(config: Config) -> Problem:
    """Return softmax regression by writer, without bias; examples are held out."""
    if config.data_dir:
        data = datasets.by_client(datasets.mnist(config.data_dir, "train"), "examples")
        data = data.select(np.arange(min(config.num_clients, data.num_clients)))
    else:
        options = {"num_classes": _NUM_CLASSES, "seed": config.data_seed}
        data = from_config(problems.synthetic_softmax, config, **options).train
    key = jax.random.key(config.data_seed)
    split = problems.hold_out_examples(data, config.share_held_out, key)
    full = problems.softmax(*split, num_classes=_NUM_CLASSES, cuts=tuple(config.cuts))

    def with_bias(params):
        return params | {"bias": jnp.zeros(_NUM_CLASSES, params["kernel"].dtype)}

    def init(key):
        return {"kernel": jnp.zeros_like(full.init(key)["kernel"])}

    return full._replace(
        loss=lambda params, rows: full.loss(with_bias(params), rows),
        init=init,
        measures=lambda params: full.measures(with_bias(params)),
    )


def _sweep(title, problem, geometry, *panels):
    """Return a sweep with C- and MC-FedDualAvg in this ball, and with one more Fast-FedDualAvg.

    This averages the clients' end points too, as in the authors' code. The geometry is the penalty,
    the ball, and the factors of the stages.
    """
    staged, fast = algorithms.mc_fed_dual_avg, algorithms.fast_fed_dual_avg
    penalty, ball, factors = geometry
    ball = on_subtree(ball, named("kernel"))

    def stages(factors):
        return takes(staged.Hparams, "mirror")(
            lambda loss, mirror: staged(loss, mirror, penalty_factors=factors, ball=ball)
        )

    def end_points(loss, mirror):
        return fast(loss, mirror, end_points=True)

    return Sweep(
        title=title,
        problem=problem,
        penalty=on_kernel(penalty),
        algorithms={
            "c_fed_dual_avg": stages((1.0,)),
            "mc_fed_dual_avg": stages(factors),
            "fast_end_points": takes(fast.Hparams, "mirror")(end_points),
        },
        panels=panels,
        claims=claims,
        keys={NonNegative: "cuts", Positive: "target_error"},
        solve_optimum=False,
    )


LASSO = _sweep(
    "Sparse recovery: distance to the true weights",
    sparse,
    (l1(), l1_ball(), (4.0, 2.0, 1.0)),
    Panel("error", "distance to the true weights", log=True),
    Panel("f1", "F1 score of the support"),
    Panel("density", "share of nonzero weights"),
    Panel("loss", "training loss", log=True),
)
LOW_RANK = _sweep(
    "Low-rank recovery: distance to the true matrix",
    matrices,
    (nuclear(), nuclear_ball(), (3.0, 1.5, 1.0)),
    Panel("error", "Frobenius distance to the true matrix", log=True),
    Panel("rank", "rank (singular values above 0.01)", whole=True),
    Panel("loss", "training loss", log=True),
    Panel("validation_loss", "loss on validation", log=True),
)
DIGITS = _sweep(
    "Digits by writer with an l1 norm",
    digits,
    (l1(), l1_ball(), (4.0, 2.0, 1.0, 1.0, 1.0)),
    Panel("loss", "training loss", early=True),
    Panel("validation_loss", "loss on held-out examples", early=True),
    Panel("accuracy", "accuracy on held-out examples", early=True),
    Panel("density", "share of nonzero weights", early=True),
)
