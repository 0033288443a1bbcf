"""Claims of the theorems, and of the curse of primal averaging."""

from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.theory.problem import ONE_HESSIAN, SETTINGS, SMALL_STEPS
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the theorems and of the curse."""
    found = []
    for setting, (_, theorem) in SETTINGS.items():
        own = select(rows, part="bound", setting=setting)
        gap, lemma, bound = (column(own, name) for name in ("gap", "lemma", "theorem"))
        local = column(own, "num_steps") > 1  # with one local step there is no discrepancy to bound
        name = setting.replace("_", "-")
        found += [
            Claim(f"{name}: Lemma 4.4 is above the gap (ratio)", float((lemma / gap).min()), 1),
            Claim(f"{name}: {theorem} is above it (ratio)", float((bound / gap).min()), 1),
            Claim(
                f"{name}: and above the lemma if K > 1 (ratio)",
                float((bound / lemma)[local].min()),
                1,
            ),
        ]
        if setting in ONE_HESSIAN:
            above, below = (column(own, f"discrepancy{end}")[local] for end in ("_bound", ""))
            text = f"{name}: Lemma 4.5 is above the discrepancy (ratio)"
            found.append(Claim(text, float((above / below).min()), 1))
    for setting, names in SMALL_STEPS.items():
        for name in names:
            own = select(rows, part="small steps", setting=setting, algorithm=name)
            ratio = float((column(own, "theorem") / column(own, "gap")).min())
            text = f"small steps: Theorem 4.1 is above the gap of {style(name)[0]} (ratio)"
            is_ours = name in ("fed_mid_osp", "minibatch")
            found.append(Claim(f"{setting}, {text}", ratio, 1, source=not is_ours))
        [minibatch] = _at_the_end(config, rows, setting, "minibatch")
        # As printed FedMiD minimises another objective with l1, see above.
        for name in ("fed_dual_avg", "fed_mid_osp" if setting == "l1" else "fed_mid"):
            [own] = _at_the_end(config, rows, setting, name)
            text = f"{setting}, small steps: {style(name)[0]} ends no higher than with minibatches"
            ratio = own["gap"] / minibatch["gap"]
            found.append(Claim(f"{text} (ratio)", ratio, 1.1, False, source=name != "fed_mid_osp"))
    averaged, dual = (
        select(rows, part="sparsity", algorithm=name, round=config.sparsity_rounds)[0]
        for name in ("fed_mid", "fed_dual_avg")
    )
    found += [
        Claim(
            "l1: the mean of FedMiD's models is denser than the models (ratio)",
            averaged["server"] / averaged["clients"],
            1.2,
        ),
        Claim(
            "l1: the model of FedDualAvg's mean dual is not (ratio)",
            dual["server"] / dual["clients"],
            1.0,
            False,
        ),
    ]
    ends = list(summary["on the ball at the end"].values())
    (mid, mid_slow), (dual, dual_slow) = ends[:2], ends[-2:]
    found += [
        Claim(
            "averaging models on the ball ends above the optimum (FedMiD's gap)", mid["gap"], 0.1
        ),
        Claim("and far inside, while the optimum has norm 1 (norm)", mid["norm"], 0.8, False),
        Claim("averaging duals ends at it (FedDualAvg's gap)", dual["gap"], 1e-3, False),
        Claim("and ends on the sphere (norm)", dual["norm"], 0.999),
        Claim(
            "with a fiftieth of the rate models are still further off than duals (ratio of gaps)",
            mid_slow["gap"] / dual_slow["gap"],
            10,
        ),
    ]
    # Claims on means over seeds and on all numbers of local steps, which a quick run cannot decide.
    return [claim._replace(quick=False) for claim in found]


def _at_the_end(config: Config, rows: list[Row], setting: str, name: str) -> list[Row]:
    return select(
        rows, part="small steps", setting=setting, algorithm=name, round=config.small_rounds
    )
