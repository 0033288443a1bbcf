"""Claims of the paper, on every split."""

import itertools
import math

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, select
from experiments.studies.kpca.rows import curves, floors, rounds_to
from experiments.study import Config

_PAPER = "Zhang, Hu, So and Johansson (NeurIPS 2024), {}"
_COMPARED = _PAPER.format("kPCA, comparison of the methods")
_SLOPE = 0.15  # tolerance of a slope of -1
_AS_GOOD = 1.1  # ratio of rounds up to which two methods count as about equal
_TWICE = 1.9  # ratio of floats that counts as twice as many; a round also sends step counts


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    found = []
    for floor in (row for row in rows if row["part"] == "floor"):
        own = select(rows, split=floor["split"])
        methods = {name: curve for (name,), curve in curves(own, "methods", "algorithm").items()}
        found += [
            claim._replace(case=floor["split"])
            for claim in _methods(config, methods, floor["grad_norm"]) + _effects(config, own)
        ]
    found += _servers(config, rows) + _crowds(rows)
    return [claim._replace(quick=False) for claim in found]


def _methods(config: Config, methods: dict[str, list[Row]], floor: float) -> list[Claim]:
    """Return the claims on the manifold method and its baselines on one split."""
    found, rounds = [], config.num_rounds
    ours = methods.get("fed_manifold")
    if ours:
        text = "the manifold method converges to a stationary point"
        least = min(row["grad_norm"] for row in ours if row["round"] > 0)
        measure = "least gradient norm"
        found.append(Claim(text, least, config.tolerance, at_least=False, measure=measure))
    if averaged := methods.get("r_fed_avg"):
        late = min(row["grad_norm"] for row in averaged if row["round"] > rounds / 2)
        measure = "least gradient norm in the second half of the rounds over half its floor"
        found.append(Claim("RFedAvg stalls", late / (floor / 2), 1.0, measure=measure))
    if pulled := methods.get("r_fed_prox"):
        middle = next(row for row in pulled if row["round"] >= rounds / 2)
        ratio = pulled[-1]["grad_norm"] / middle["grad_norm"]
        measure = "last gradient norm over that after half of the rounds"
        found.append(Claim("RFedProx stalls", ratio, 0.5, measure=measure))
    if ours and len(methods) > 1:
        sent = _floats(ours[-1])
        least = min(
            row["grad_norm"]
            for name, curve in methods.items()
            for row in curve
            if name != "fed_manifold" and _floats(row) <= sent
        )
        text = "the manifold method has the smallest gradient for the communication"
        measure = "gradient norm over the least of other methods with as many floats sent"
        ratio = ours[-1]["grad_norm"] / least
        found.append(Claim(text, ratio, 1.0, at_least=False, measure=measure))
    if ours and (reduced := methods.get("r_fed_svrg")):
        one, other = _rounds_to_shared_level(config, ours, reduced)
        found += [
            Claim(
                "RFedSVRG is about as good a round",
                other / one,
                _AS_GOOD,
                at_least=False,
                measure="its rounds over the method's, to the tolerance or the last level of both",
            ),
            Claim(
                "RFedSVRG sends twice as much",
                _floats(reduced[-1]) / _floats(ours[-1]),
                _TWICE,
                measure="floats up and down over the method's",
            ),
        ]
    return [claim._replace(source=_COMPARED) for claim in found]


def _rounds_to_shared_level(
    config: Config, one: list[Row], other: list[Row]
) -> tuple[float, float]:
    """Return the rounds in which two curves reach the tolerance, or the last level of both.

    A run that is stopped above the tolerance is compared where it was, not counted as never there.
    """
    least = [min(row["grad_norm"] for row in curve) for curve in (one, other)]
    level = max(config.tolerance, *least)
    first, second = (rounds_to(level, curve) for curve in (one, other))
    return first or math.nan, second or math.nan


def _floats(row: Row) -> int:
    return row["floats_up"] + row["floats_down"]


def _effects(config: Config, rows: list[Row]) -> list[Claim]:
    """Return the claims on the number of local steps and on the batch size of one split."""
    found = []
    by_steps = [curve for _, curve in sorted(curves(rows, "steps", "num_steps").items())]
    if len(by_steps) > 1:
        pairs = [_rounds_to_shared_level(config, *pair) for pair in itertools.pairwise(by_steps)]
        ratio = min(few / many for few, many in pairs)
        found.append(
            Claim(
                "more local steps need fewer rounds",
                ratio,
                1.05,
                source=_PAPER.format("kPCA, number of local steps"),
                measure="least ratio of the rounds, fewer steps over more, to the tolerance or the "
                "last level of both",
            )
        )
    batches = curves(rows, "batches", "batch_size")
    sizes = sorted(size for (size,) in batches)
    if len(sizes) > 1:
        text = "a larger batch ends at a smaller gradient"
        measure = "floor of the smallest batches over that of the largest"
        source = _PAPER.format("kPCA, batch size")
        small, large = (floors(batches[(sizes[end],)]) for end in (0, -1))
        found.append(over_seeds(text, small / large, 1.0, source=source, measure=measure))
    return found


def _servers(config: Config, rows: list[Row]) -> list[Claim]:
    """Return the claim that the rate is 1 / (sqrt(n) tau R eta) with a server step of sqrt(n)."""
    found = []
    by_rate = curves(rows, "servers", "split", "server_lr")
    for split in dict.fromkeys(name for name, _ in by_rate):
        (_, usual), (_, larger) = sorted(
            (rate, curve) for (name, rate), curve in by_rate.items() if name == split
        )
        level = max(config.tolerance, usual[-1]["grad_norm"])
        one, many = (rounds_to(level, curve) for curve in (usual, larger))
        saved = one / many if one and many else math.nan
        found.append(
            Claim(
                "n clients with a server step of sqrt(n) speed the method up by sqrt(n)",
                saved / math.sqrt(config.num_clients),
                0.9,
                source=_PAPER.format("theorem on the rate"),
                measure="rounds of a step of 1 over those of a step of sqrt(n), over sqrt(n)",
                case=split,
            )
        )
    return found


def _crowds(rows: list[Row]) -> list[Claim]:
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) < 2:
        return []
    logs = np.log([floors(curve) for curve in by_size.values()])  # [sizes, seeds]
    slopes = np.polyfit(np.log([size for (size,) in by_size]), logs, 1)[0]
    measure = "log-log slope of the squared gradient's floor in n"
    text = "with minibatches n clients lower the floor as 1 / n"
    source, case = _PAPER.format("theorem on the rate"), "synthetic"
    below = over_seeds(
        text, slopes, -1 + _SLOPE, at_least=False, source=source, measure=measure, case=case
    )
    text = "and no faster than 1 / n"
    return [below, over_seeds(text, slopes, -1 - _SLOPE, measure=measure, case=case)]
