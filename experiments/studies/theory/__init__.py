"""Theorems of federated composite optimisation, and the failure of averaging models."""

import itertools
from pathlib import Path

import numpy as np

from experiments.report.axes import shaded
from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.shared import Chart, Curve, figure
from experiments.studies.theory.rows import SMALL_STEPS, TERMS, study, summarise
from experiments.studies.theory.tasks import ONE_HESSIAN, REGRESSIONS, SETTINGS
from experiments.study import Config, Study
from fcojax.transforms.mirrors.p_norm import Exponent
from fcojax.types import Count, CountOrZero, NonNegative, Positive

# Theorem 4.1 claims nothing here of FedMiD-OSP and of minibatches, and the paper only says that
# there are theorems with sampling, which are our derivation, as are unequal weights. As printed
# FedMiD minimises another objective with l1, see the config, so FedMiD-OSP is compared with
# minibatches there.
STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), Lemma 4.4
Lemma-4.4 | Lemma 4.4 is above the gap | least ratio | >= 1
Yuan, Zaheer and Reddi (ICML 2021), Theorem 4.3
Theorem-4.3 | Theorem 4.3 is above the gap | least ratio | >= 1
4.3-start-rounds | the first term of Theorem 4.3 falls like 1/R | slope in R | <= -0.9
4.3-start-steps | the first term of Theorem 4.3 falls like 1/K | slope in K | <= -0.9
4.3-noise-clients | the noise of Theorem 4.3 falls like 1/M | slope in M | <= -0.8
4.3-terms | each term of Theorem 4.3 is above the gap that it alone leaves | least ratio | >= 1
Yuan, Zaheer and Reddi (ICML 2021), Lemma 4.5
Lemma-4.5 | Lemma 4.5 is above the discrepancy of the duals | least ratio | >= 1
Yuan, Zaheer and Reddi (ICML 2021), Theorem 4.2
Theorem-4.2 | Theorem 4.2 is above the gap | least ratio | >= 1
4.2-start-rounds | the first term of Theorem 4.2 falls like 1/R | slope in R | <= -0.9
4.2-start-steps | the first term of Theorem 4.2 falls like 1/K | slope in K | <= -0.9
4.2-noise-clients | the noise of Theorem 4.2 falls like 1/M | slope in M | <= -0.8
4.2-terms | each term of Theorem 4.2 is above the gap that it alone leaves | least ratio | >= 1
Yuan, Zaheer and Reddi (ICML 2021), Theorem 4.1
small its fed_dual_avg
    | Theorem 4.1 is above the gap of FedDualAvg at small steps | least ratio | >= 1
small its fed_mid | Theorem 4.1 is above the gap of FedMiD at small steps | least ratio | >= 1
end over fed_dual_avg | at small steps FedDualAvg ends no higher than with minibatches
    | gap over that of minibatches | <= 1.1
end over fed_mid | at small steps FedMiD ends no higher than with minibatches
    | gap over that of minibatches | <= 1.1
Yuan, Zaheer and Reddi (ICML 2021), section 3.2
sparse its fed_mid | averaging sparse models makes a dense one (FedMiD)
    | density of the clients' models | <= 0.5
density its fed_mid | averaging sparse models makes a dense one (FedMiD)
    | density of the mean over that of the clients' models | >= 1.2
density its fed_dual_avg | averaging duals does not (FedDualAvg)
    | density of the server's model over that of the clients' models | <= 1
gap its mid | averaging models ends above the optimum | FedMiD's gap | >= 0.1
norm its mid
    | averaging models ends inside the ball, the optimum on the sphere | FedMiD's norm | <= 0.8
gap its dual | averaging duals ends at it | FedDualAvg's gap | <= 1e-3
norm its dual | averaging duals ends on the sphere | its norm | >= 0.999
Expected by us
Lemma-4.4-with-sampling | Lemma 4.4 with sampling is above the gap | least ratio | >= 1
Lemma-4.4-with-weights | Lemma 4.4 with unequal weights is above the gap | least ratio | >= 1
Theorem-4.3-with-sampling | Theorem 4.3 with sampling is above the gap | least ratio | >= 1
Theorem-4.2-with-sampling | Theorem 4.2 with sampling is above the gap | least ratio | >= 1
Theorem-4.2-with-weights | Theorem 4.2 with unequal weights is above the gap | least ratio | >= 1
noise-weights | with unequal weights the noise falls like the sum of their squares
    | slope in its inverse | <= -0.8
sampling-cohort | what a cohort of m adds falls like (M - m) / (m (M - 1))
    | slope in its inverse | <= -0.8
own-terms | the noise with unequal weights and what a cohort adds are above the gaps that they
    alone leave | least ratio | >= 1
4.2-drift-steps | the drift grows no faster than its term, K^2 | slope in K | <= 2.2
4.3-drift-steps | the drift grows no faster than its term, K^2 | slope in K | <= 2.2
Lemma-4.5-with-sampling | Lemma 4.5 is above the discrepancy of the duals | least ratio | >= 1
small its fed_mid_osp
    | Theorem 4.1 is above the gap of FedMiD-OSP at small steps | least ratio | >= 1
small its minibatch
    | Theorem 4.1 is above the gap of mirror descent with minibatches at small steps
    | least ratio | >= 1
end over fed_mid_osp | at small steps FedMiD-OSP ends no higher than with minibatches
    | gap over that of minibatches | <= 1.1
slow | with a fiftieth of the rate models are still further off than duals
    | ratio of the gaps | >= 10
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on means over seeds, which a quick run cannot decide."""
    found, late = [], {"round": config.small_rounds}
    for setting, (_, theorem) in SETTINGS.items():
        own = select(rows, part="bound", setting=setting)
        kind = "".join(f"-{word}" for word in theorem.split()[2:])  # as in -with-sampling
        gap, lemma, bound = (column(own, name) for name in ("gap", "lemma", "theorem"))
        numbers = {f"Lemma-4.4{kind}": lemma / gap, theorem.replace(" ", "-"): bound / gap}
        local = [row for row in own if row["num_steps"] > 1]  # with one no duals differ
        if setting in ONE_HESSIAN and local:
            ratio = column(local, "discrepancy_bound") / column(local, "discrepancy")
            numbers[f"Lemma-4.5{kind}"] = ratio
        found += judged(STATEMENTS, numbers, setting.replace("_", "-"))
    for setting, theorem in TERMS.items():
        alone = select(rows, part="terms", setting=setting)
        numbers, ratios = {}, {True: [], False: []}
        for term, over, _ in _PANELS:
            own, ours = select(alone, term=term, over=over), over in ("weights", "cohort")
            x, y = np.log(column(own, "count")), np.log(column(own, "gap"))
            numbers[f"{theorem}-{term}-{over}"[4 * ours :]] = np.polyfit(x, y, 1)[0]
            ratios[ours].extend(column(own, "theorem") / column(own, "gap"))
        numbers |= {f"{theorem}-terms": ratios[False], "own-terms": ratios[True]}
        found += judged(STATEMENTS, numbers, setting)
    for setting, names in SMALL_STEPS.items():
        small, end = {}, {}
        for name in ("minibatch", *names):
            own = select(rows, part="small steps", setting=setting, algorithm=name)
            small[name] = column(own, "theorem") / column(own, "gap")
            if (setting, name) != ("l1", "fed_mid"):
                [end[name]] = column(select(own, **late), "gap")
        found += judged(STATEMENTS, {"small": small, "end": end}, setting)
    sparsity = select(rows, part="sparsity", round=config.sparsity_rounds)
    sparse = {row["algorithm"]: row["clients"] for row in sparsity}
    density = {row["algorithm"]: row["server"] / row["clients"] for row in sparsity}
    ends = list(summary["on the ball at the end"].values())
    (mid, mid_slow), (dual, dual_slow) = ends[:2], ends[-2:]
    measures = {name: {"mid": mid[name], "dual": dual[name]} for name in ("gap", "norm")}
    slow = {"slow": mid_slow["gap"] / dual_slow["gap"]}
    found += judged(STATEMENTS, {"sparse": sparse, "density": density}, "l1")
    return found + judged(STATEMENTS, measures | slow, "ball")


# A term of a theorem, alone, and what it is drawn over.
_PANELS = (
    ("start", "rounds", "rounds / 10"),
    ("start", "steps", "steps"),
    ("noise", "clients", "clients"),
    ("drift", "steps", "steps"),
    ("noise", "weights", r"$1 / \sum_m p_m^2$"),
    ("sampling", "cohort", "$m (M - 1) / (M - m)$"),
)
_ROUNDS, _BOTH = "communication round", ("fed_mid", "fed_dual_avg")
_SHARE = r"$\eta_c = {:g}/(4L)$"
_LINES = (("gap", "-", "gap"), ("lemma", "--", "Lemma 4.4"), ("theorem", ":", "Theorem 4.2 or 4.3"))


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the bounds, the curse of averaging on the ball and with an l1 norm, and small steps."""
    bounds, ball, sparsity, small, terms = [], [], [], [], []
    for setting, (text, _) in SETTINGS.items():
        for steps in config[f"{setting}_num_steps"]:
            cell = select(rows, part="bound", setting=setting, num_steps=steps)
            curves = [
                Curve(select(cell, rate_share=at), y, colour, f"{word}, {_SHARE.format(at)}", line)
                for at, colour in shaded(config.rate_shares)
                for y, line, word in _LINES
            ]
            labels = _ROUNDS, r"$\Phi(\hat w) - \Phi^*$"
            bounds.append(Chart("round", labels, curves, f"{text}, K = {steps}", "y"))
    for measure, up, log, level in (
        ("gap", "$F(w_r) - F^*$", "y", None),
        ("norm", "norm of the model", "", (1.0, "the optimum's norm")),
    ):
        curves, rates = [], zip(config.curse_shares, ("-", "--"), strict=True)
        for name, (at, line) in itertools.product(_BOTH, rates):
            own, (text, colour, _) = select(rows, part="curse", algorithm=name), style(name)
            label = f"{text}, {_SHARE.format(at)}"
            curves.append(Curve(select(own, rate_share=at), measure, colour, label, line))
        ball.append(Chart("round", (_ROUNDS, up), curves, "", log, level))
    for name in _BOTH:
        own, (text, colour, _) = select(rows, part="sparsity", algorithm=name), style(name)
        means = Curve(own, "clients", colour, f"{text}, mean of clients", "--")
        curves = [means, Curve(own, "server", colour, f"{text}, server")]
        labels = _ROUNDS, "density"
        sparsity.append(Chart("round", labels, curves, text, "", None, (0, 1.02)))
    for setting, algorithms in SMALL_STEPS.items():
        own = select(rows, part="small steps", setting=setting)
        curves = [
            Curve(select(own, algorithm=name), "gap", colour, text, line)
            for name, (text, colour, line) in zip(algorithms, map(style, algorithms), strict=True)
        ]
        curves.append(Curve(curves[-1].rows, "theorem", "#333333", "Theorem 4.1", ":"))
        labels = _ROUNDS, r"$\Phi(\bar w_R) - \Phi^*$, mean of the models"
        small.append(Chart("round", labels, curves, SETTINGS[setting][0], "xy"))
    for (setting, theorem), (term, over, across) in itertools.product(TERMS.items(), _PANELS):
        own = select(rows, part="terms", setting=setting, term=term, over=over)
        curves = [
            Curve(own, "gap", "#0072B2", "gap"),
            Curve(own, "theorem", "#333333", "its bound", ":"),
        ]
        title = f"Theorem {theorem}, {term}"
        terms.append(Chart("count", (across, "gap"), curves, title, "xy"))
    seeds = f"mean and 10 to 90 per cent of {config.seeds} seeds"
    columns, curse = len(bounds) // len(SETTINGS), "The curse of primal averaging"
    last = len(bounds) - columns * len(REGRESSIONS)
    on_ball = f"{curse} on the ball (mean and range of {len(config.curse_seeds)} seeds)"
    below = f"FedDualAvg below its bounds ({seeds})"
    return [
        *figure(directory / "bounds.png", below, bounds[:last], columns),
        *figure(directory / "data.png", below, bounds[last:], columns),
        *figure(directory / "curse.png", on_ball, ball),
        *figure(directory / "terms.png", "One term of a bound at a time", terms, len(_PANELS) // 2),
        *figure(directory / "sparsity.png", f"{curse} with an l1 norm", sparsity),
        *figure(directory / "small_steps.png", f"Small client rates ({seeds})", small, height=3.0),
    ]


EXPERIMENT = Study(
    title="Federated composite optimisation: bounds, and the curse of primal averaging",
    rows=study,
    summarise=summarise,
    claims=claims,
    notes=(
        "Theorem 4.1 is stated for FedMiD as well. As printed FedMiD applies the penalty twice per "
        "round, on clients and on the server, and converges to the minimiser of F + 2 psi: with a "
        "finite penalty its gap does not vanish, and any vanishing bound falls below it. Without "
        "the client's prox (FedMiD-OSP) the gap keeps falling. With an indicator the theorem is "
        "false for FedMiD too, though the run on the ball is below its bound: docs/theorem_4_1.md "
        "has two clients for which it fails."
    ),
    figures=draw,
    x64=True,
    printed=("constants, and the least bound at the end",),
    keys={
        Count: "num_draws seeds term_counts *_clients *_dim *_steps *_rounds *_size *eval_every",
        CountOrZero: "data_seed curse_seeds",
        Exponent: "p_norm_exponent",
        Positive: "rate_shares curse_shares[2] small_client_lr sparsity_client_lr weighted_ratio",
        NonNegative: "*_scale",
    },
    requires={
        f"{part}rounds that {every} divides": lambda own, part=part, every=every: (
            own[f"{part}rounds"] % own[every] == 0
        )
        for part in ("num_", "curse_", "small_", "sparsity_")
        for every in [f"{part.removeprefix('num_')}eval_every"]
    },
)
