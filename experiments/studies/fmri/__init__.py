"""Faces against houses from brain scans: Yuan, Zaheer and Reddi (ICML 2021), section 5.3."""

import itertools
import math
import pathlib
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import fcojax
from experiments.report import axes
from experiments.report.claims import Claim, judged, mcnemar
from experiments.report.plots import Panel, style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_right, best_scores, grid_scores
from experiments.studies.shared import mirror_descent, one_client, with_right, with_support
from experiments.study import Config, Sweep, from_config
from fcojax import datasets
from fcojax.algorithms import Work
from fcojax.problems import ClientData, Problem, brain_voxels, fmri_surrogate, logistic, on_grid
from fcojax.transforms import Penalty, grid_variation, l1, named, on_subtree
from fcojax.types import Count, CountOrZero, NonNegative, Real

# "Comparable" is read as within two points, "somewhat less" as any difference.
STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.3, Figures 1 and 5
accuracy beyond centralized
    | FedDualAvg is comparable to centralised training | accuracy behind it | < 0.02
clear its local | FedDualAvg is clearly better than local training | more accurate by | > 0
clear its fed_avg_subgradient
    | FedDualAvg is clearly better than FedAvg with subgradients | more accurate by | > 0
objective over fed_avg_subgradient
    | FedAvg with subgradients has a worse objective | times FedDualAvg's | > 1
density over fed_mid fed_mid_osp
    | FedMiD and FedMiD-OSP are denser | density over FedDualAvg's | > 1
clear its fed_mid fed_mid_osp
    | FedMiD and FedMiD-OSP are somewhat less accurate | less accurate by | > 0
density over fed_dual_avg_osp
    | FedDualAvg-OSP is sparse | density over FedDualAvg's | < 1.5
accuracy behind fed_dual_avg_osp
    | FedDualAvg-OSP is far less accurate | less accurate by | > 0.02
Yuan, Zaheer and Reddi (ICML 2021), appendix B.4.2
near first fed_dual_avg | FedDualAvg is the most robust to the rates
    | lead in the share of the grid within 0.01 of the best accuracy of all methods | > 0
Expected by us
other | FedDualAvg is the most robust to the rates, by other measures | lead | > 0
ahead | no pair of rates makes another method as sparse and as accurate as FedDualAvg at its best
    | lead of its most accurate pair over pairs that are no denser, in accuracy | > 0.01
"""
# FedDualAvg, the methods that the source compares with it over all rates, and its baselines.
_OVER_ALL = ("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_avg_subgradient")
_ORDER = (*_OVER_ALL, "centralized", "local")


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds, and over all rates.

    The source's figure has one scale for all methods, so rates count as good near the best accuracy
    of all. The claims near each method's own best accuracy, which favours methods whose best is
    low, and on the mean over the grid are our expectations.
    """
    known = summary["algorithms"]
    entries = {name: known[name] for name in _ORDER if name in known}
    if _ORDER[0] not in entries or config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    numbers: dict[str, Any] = {"accuracy": {}, "density": {}, "objective": {}}
    for (name, entry), (measure, own) in itertools.product(entries.items(), numbers.items()):
        own[name] = best_scores(rows, name, entry, judge._replace(measure=measure))
    # A clear lead in accuracy holds over the scans as well as over the seeds.
    first, *_ = right = [best_right(rows, name, entry) for name, entry in entries.items()]
    accuracy, numbers["clear"] = numbers["accuracy"], {}
    for name, own in zip(entries, right, strict=True):
        chance = mcnemar(first, own) if first is not None and own is not None else None
        numbers["clear"][name] = accuracy[_ORDER[0]] - accuracy[name], {"examples": chance}
    # A failed run counts as a random classifier.
    of = [name for name in _OVER_ALL if name in entries]
    tables = {name: np.maximum(grid_scores(rows, name, entries[name], judge), 0.5) for name in of}
    if len(tables) > 1:
        best = np.max([table.max(axis=0) for table in tables.values()], axis=0)
        numbers["near"] = {name: np.mean(x >= best - 0.01, axis=0) for name, x in tables.items()}
        own, *owns = (np.mean(x >= 0.99 * x.max(axis=0), axis=0) for x in tables.values())
        mean, *means = (np.mean(x, axis=0) for x in tables.values())
        numbers["other"] = {
            "share within one per cent of its own best accuracy": own - np.max(owns, axis=0),
            "mean accuracy over the grid": mean - np.max(means, axis=0),
        }
        sparse = judge._replace(measure="density")
        densities = {name: grid_scores(rows, name, entries[name], sparse) for name in tables}
        top = tables[_ORDER[0]].mean(axis=1).argmax()
        limit = densities[_ORDER[0]][top]
        rivals = [np.where(densities[x] <= limit, tables[x], 0.5).max(axis=0) for x in of[1:]]
        numbers["ahead"] = tables[_ORDER[0]][top] - np.max(rivals, axis=0)
    return judged(STATEMENTS, numbers)


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw accuracy against density for all rates, and the weights on the grid of voxels."""
    drawn = [_over_density(config, rows, summary, directory)] if rows else []
    voxels, grid = voxel_grid(config)
    images = {}
    for label in summary["algorithms"]:
        saved = directory.parent / "models" / f"{label}.npz"
        if saved.exists():
            kernel = on_grid(np.load(saved)["kernel"], voxels, grid)
            largest = max(float(np.nanmax(np.abs(kernel))), 1e-12)
            images[style(label)[0]] = kernel / largest
    if images:
        title = "Weights relative to the largest of each model"
        drawn += [draw_maps(images, directory / "weights.png", title, "RdBu_r", -1.0)]
    return drawn


def _over_density(config: Config, rows: list[Row], summary: Summary, directory: Path) -> Path:
    """Draw the last accuracy and density of each pair of rates that did not diverge."""
    judge, known = Criterion("accuracy", "max", config.criterion_rounds), summary["algorithms"]
    found = {}
    for name in (name for name in _ORDER if name in known):
        both = (judge._replace(measure=measure) for measure in ("density", "accuracy"))
        x, y = (grid_scores(rows, name, known[name], own).mean(axis=1) for own in both)
        found[name] = np.array([x, y])[:, np.isfinite(x) & np.isfinite(y)]
    # A model without weights is drawn at the least density of the others.
    least = min(x[x > 0].min(initial=1.0) for x, _ in found.values())
    figure, (axis,) = axes.panels(1, height=3.2)
    for (name, (x, y)), mark in zip(found.items(), "osD^vx+", strict=False):
        text, colour, _ = style(name)
        axis.plot(np.maximum(x, least), y, mark, color=colour, label=text, markersize=5, alpha=0.8)
    axes.describe(axis, "share of nonzero weights", "accuracy on held-out scans", log="x")
    title = f"Each pair of rates, mean of the last {config.criterion_rounds} rounds"
    return axes.finish(figure, directory / "density.png", title)


def draw_maps(
    images: dict[str, np.ndarray], path: Path, what: str, colours: str, least: float
) -> Path:
    """Draw the slice of the images with the largest total; colours go from ``least`` to one."""
    masses = [np.nansum(np.abs(image), axis=(0, 1)) for image in images.values()]
    level = int(np.sum(masses, axis=0).argmax())
    figure, grid = axes.grid_of(len(images), height=1.9)
    for axis in grid:
        axis.set_axis_off()
    shown = None
    for axis, (title, image) in zip(grid, images.items(), strict=False):
        axis.imshow(np.isnan(image[:, :, level]), cmap="Greys", vmin=-0.15, vmax=6)
        shown = axis.imshow(image[:, :, level], cmap=colours, vmin=least, vmax=1)
        axis.set_title(title)
    figure.colorbar(shown, ax=grid, location="bottom", shrink=0.5, aspect=40)
    axes.head(figure, f"{what}, slice {level} of the voxel grid")
    return axes.save(figure, path)


def _packed(config: Config) -> pathlib.Path:
    """Return the path of one subject's file for the view that the config names."""
    return pathlib.Path(config.data_dir) / f"haxby_subj1_{config.view}.npz"


def problem(config: Config) -> Problem:
    """Return training and held-out sessions, with the start scaled by ``start_scale``."""
    scans = _sessions(config)

    def init(key):
        return jax.tree.map(lambda leaf: config.start_scale * leaf, scans.init(key))

    known = with_support(scans._replace(init=init), config.cuts[0])
    assert scans.validation is not None
    rows = scans.validation.examples

    def right(params):
        return (rows["x"] @ params["kernel"] + params["bias"] > 0) == (rows["y"] > 0)

    return with_right(known, right, len(rows["y"]))


def _sessions(config: Config) -> Problem:
    if not config.data_dir:
        return from_config(fmri_surrogate, config, seed=config.data_seed)
    packed = _packed(config)
    if packed.exists():
        scans = datasets.by_client(datasets.haxby_npz(packed).pooled)
        held_out = np.isin(np.arange(scans.num_clients), config.held_out)
        sets = [scans.select(np.flatnonzero(kept)) for kept in (~held_out, held_out)]
    else:
        parts = (datasets.haxby(config.data_dir, subjects=s) for s in ((1, 2, 3, 4, 5), (6,)))
        sets = [datasets.by_client(part.pooled) for part in parts]
    return logistic(*sets, cuts=tuple(config.cuts))


def voxel_grid(config: Config) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the position of each feature in the voxel grid, and the grid's shape."""
    if not config.data_dir:
        return brain_voxels(tuple(config.grid), config.num_voxels), tuple(config.grid)
    packed = _packed(config)
    if packed.exists():
        scans = datasets.haxby_npz(packed)
        return scans.voxels, scans.grid
    import nibabel

    mask = nibabel.load(pathlib.Path(config.data_dir) / "haxby2001" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) != 0  # pyright: ignore[reportAttributeAccessIssue]
    return np.argwhere(inside), inside.shape


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the voxels' weights, or their total variation in space."""
    if config.penalty == "l1":
        return on_subtree(l1(), named("kernel"))
    voxels, grid = voxel_grid(config)
    mask = np.isfinite(on_grid(np.ones(len(voxels)), voxels, grid))
    return on_subtree(grid_variation(mask), named("kernel"))


def centralized(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return all scans as one client, with a round's share of the authors' trainer's epochs."""
    return _trainer(config, one_client(problem))


def local(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the scans of one session as one client, with the work of the same trainer."""
    own = config.local_client
    if not 0 <= own < problem.train.num_clients:
        raise ValueError(
            f"local_client is {own}; pass one of the {problem.train.num_clients} sessions, from 0."
        )
    return _trainer(config, one_client(problem, own, own + 1))


def _trainer(config: Config, data: ClientData) -> tuple[ClientData, Work]:
    """Return the data with so many steps a round that the whole run has the config's epochs.

    A round has at least one step, so small data sets have more epochs.
    """
    size = min(config.centralized_batch, data.max_size)
    steps = config.centralized_epochs * data.max_size / (size * config.num_rounds)
    return data, fcojax.local_steps(max(1, round(steps)), size)


EXPERIMENT = Sweep(
    title="Faces against houses: sparse logistic regression on fMRI scans",
    problem=problem,
    penalty=penalty,
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("accuracy", "accuracy on held-out scans"),
        Panel("validation_loss", "loss on held-out scans", log=True),
        Panel("density", "share of nonzero weights", log=True),
    ),
    # Proximal gradient descent on minibatches, as in the authors' code.
    algorithms={"centralized": mirror_descent, "local": mirror_descent},
    plans={"centralized": centralized, "local": local},
    keys={
        Count: "grid[3] sessions[2+] num_voxels centralized_epochs centralized_batch",
        CountOrZero: "held_out local_client",
        NonNegative: "cuts",
        Real: "start_scale",
        Literal["slice", "wholebrain_25mm"]: "view",
        Literal["l1", "grid_variation"]: "penalty",
    },
    requires={"num_voxels within the grid": lambda own: own.num_voxels <= math.prod(own.grid)},
    claims=claims,
    figures=draw,
    captions={"density": "Accuracy against density at the end, a point for each pair of rates."},
    solve_optimum=False,  # with 39,912 weights the optimum takes longer than all runs together
)
