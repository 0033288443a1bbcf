"""Stability of the voxels that sparse logistic regression finds, with our expectations of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fmri import draw_maps, penalty, problem, voxel_grid
from experiments.study import Config, Study
from fcojax.problems import ClientData, on_grid
from fcojax.reference import fista
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Real, Share

STATEMENTS = """
Expected by us
overlap | halves of scans and of sessions find the same voxels | overlap | >= 0.5
voxels | some voxels are found in nearly all halves | voxels | >= 1
precision | voxels found in nearly all halves respond | precision | >= 0.95
recall | all voxels that respond are found | recall | >= 0.95
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return that both kinds of halves agree and, where it is known, that the voxels respond."""
    scans, sessions = (found(config, rows, halves) for halves in HALVES)
    both = (scans & sessions).sum() / max((scans | sessions).sum(), 1)
    numbers = {"overlap": both, "voxels": scans.sum(), "precision": {}, "recall": {}}
    for entry in summary["stability"]:
        for measure in {"precision", "recall"} & entry.keys():
            numbers[measure][f"halves of the {entry['halves of the']}"] = entry[measure]
    return judged(STATEMENTS, numbers)


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the slice in which voxels are found most often, for both kinds of halves."""
    voxels, grid = voxel_grid(config)
    images = {}
    for halves in HALVES:
        frequency = column(select(rows, part="voxel", halves=halves), "frequency")
        images[f"halves of the {halves}"] = on_grid(frequency, voxels, grid)
    title = "Share of the halves that find a voxel"
    return [draw_maps(images, directory / "frequencies.png", title, "cividis", 0.0)]


# What a draw leaves out half of.
HALVES = ("scans", "sessions")
_BEYOND = 1e9  # a strength at which no voxel has a weight


def study(config: Config) -> Iterator[Row]:
    """Yield the largest frequency of each voxel over the strengths, for both kinds of halves."""
    scans, psi, key = problem(config), penalty(config), jax.random.key(config.data_seed)
    places, _ = voxel_grid(config)
    start = jax.tree.map(jnp.zeros_like, scans.init(key))

    def smooth(params, given):
        examples, weights = given
        return weights @ scans.loss(params, examples)

    def fit(strength, start, weights):
        given = scans.train.examples, weights
        return fista(smooth, psi, strength, start, given, tolerance=config.tolerance).params

    everything = _weights(scans.train, np.arange(int(scans.train.offsets[-1])))
    null = fit(_BEYOND, start, everything)
    assert psi.scale_max is not None
    first = psi.scale_max(jax.grad(smooth)(null, (scans.train.examples, everything)))
    strengths = first * np.geomspace(1.0, config.least, config.num_strengths)
    for halves in HALVES:
        chosen = np.zeros((config.num_strengths, len(places)))
        for draw in range(config.num_draws):
            half = _half(scans.train, halves, jax.random.fold_in(key, draw))
            model, weights = start, _weights(scans.train, half)
            for at, strength in enumerate(strengths):
                model = fit(strength, model, weights)
                chosen[at] += np.ravel(model["kernel"]) != 0
        frequencies = chosen.max(axis=0) / config.num_draws
        for voxel, (place, frequency) in enumerate(zip(places, frequencies, strict=True)):
            row = {"part": "voxel", "halves": halves, "voxel": voxel}
            yield row | {"place": place.tolist(), "frequency": float(frequency)}


def _half(data: ClientData, halves: str, key: Any) -> np.ndarray:
    """Return the scans of a random half: half of each session's, or all of half of the sessions."""
    sizes = np.asarray(data.sizes)
    session = np.repeat(np.arange(sizes.size), sizes)
    if halves == "sessions":
        order = np.asarray(jax.random.permutation(key, sizes.size))
        return np.flatnonzero(np.isin(session, order[round(sizes.size / 2) :]))
    # The scans of each session, in a random order.
    order = np.lexsort((np.asarray(jax.random.uniform(key, session.shape)), session))
    place = np.arange(session.size) - np.asarray(data.offsets)[session]
    return order[place >= np.rint(sizes / 2)[session]]


def _weights(data: ClientData, scans: np.ndarray) -> np.ndarray:
    """Return the weight of each scan in F, if the sessions have these scans alone."""
    sizes = np.asarray(data.sizes)
    session = np.repeat(np.arange(sizes.size), sizes)
    counts = np.bincount(session[scans], minlength=sizes.size)
    weights = np.zeros(session.size, np.float32)
    weights[scans] = (np.asarray(data.weights) / np.maximum(counts, 1))[session[scans]]
    return weights / weights.sum()


def found(config: Config, rows: list[Row], halves: str) -> np.ndarray:
    """Return which voxels are found in at least the config's share of the halves."""
    return column(select(rows, part="voxel", halves=halves), "frequency") >= config.often


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the number of voxels that are found often, and how many of those respond."""
    scans = problem(config)
    start = scans.init(jax.random.key(0))
    table = []
    for halves in HALVES:
        often = found(config, rows, halves)
        shown = start | {"kernel": jnp.asarray(often, jnp.float32).reshape(start["kernel"].shape)}
        measures = scans.measures(shown)
        entry = {"halves of the": halves, "voxels": often.size}
        entry[f"found in {config.often:g} of the halves"] = int(often.sum())
        # Of real scans nobody knows which voxels respond.
        known = {"precision", "recall"} & measures.keys()
        table.append(entry | {name: float(measures[name]) for name in sorted(known)})
    return {"stability": table}


EXPERIMENT = Study(
    title="Faces against houses: the voxels that are found on every half of the scans",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    keys={
        Count: "grid[3] sessions[2+] num_voxels num_blobs num_strengths num_draws",
        CountOrZero: "held_out data_seed",
        NonNegative: "cuts smoothing effect_spread",
        Real: "start_scale effect",
        Positive: "tolerance",
        Share: "least often share_true",
        Literal["slice", "wholebrain_25mm"]: "view",
        Literal["l1"]: "penalty",
        str: "data_dir",
    },
    printed=("stability",),
)
