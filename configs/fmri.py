r"""Faces against houses from scans of the brain: Yuan, Zaheer and Reddi (ICML 2021), section 5.3.

    python -m experiments.run --config=configs/fmri.py --workdir=runs/fmri
    python -m experiments.run --config=configs/fmri.py --workdir=runs/fmri_slice \
        --config.data_dir=DIR --config.cohort_size=9 --config.num_rounds=300

Figures 1 and 5: sparse logistic regression with sessions as clients, 18 scans each, a penalty of
1e-3. Every algorithm over a 9 x 3 grid of rates, shown at the rates with the least objective over
the last 40 rounds, beside dual averaging on all sessions pooled (centralized) and on one session
alone (local). Six minutes on two cores for 100 rounds on the surrogate, a third of the paper's;
half a minute for 300 rounds on the slice.

The data are, by what ``DIR`` holds: ``haxby2001``, the six subjects of Haxby et al. (2001), of
whom the sixth judges, 39,912 voxels; or ``haxby_subj1_slice.npz``, half a slice of the first
subject with 12 sessions, of which ``held_out`` judge, so that only 9 train; or, without ``DIR``, a
surrogate of the full size drawn from a seed.

The paper gives neither the cohort nor the local work nor the grid nor how its baselines were tuned:
ten clients a round, two steps of batch 9, rates from 1e-4, because a row's squared norm is 39,912.
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np

import fcojax
from experiments.report import axes, heat
from experiments.report.claims import Claim
from experiments.report.plots import Panel, style
from experiments.report.summary import Criterion, curves, score
from experiments.study import Setting, Sweep, Variant
from experiments.sweep_config import sweep_config
from fcojax.problems import brain_voxels, fmri_surrogate, loaders, logistic, on_grid
from fcojax.transforms import l1, named, on_subtree

PANELS = (
    Panel("objective", "objective F + psi", log=True),
    Panel("accuracy", "accuracy on held-out scans"),
    Panel("validation_loss", "loss on held-out scans", log=True),
    Panel("density", "density (share of nonzero weights)", log=True),
)
_SLICE = "haxby_subj1_slice.npz"


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=(
            "fed_dual_avg",
            "fed_dual_avg_osp",
            "fed_mid",
            "fed_mid_osp",
            "fed_avg_subgradient",
            "centralized",
            "local",
        ),
        client_lr=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        server_lr=(0.1, 1.0, 10.0),
        penalty_scale=(1e-3,),
        own_grids={"centralized": {"server_lr": (1.0,)}, "local": {"server_lr": (1.0,)}},
        num_rounds=100,
        eval_every=20,
        cohort_size=10,
        num_steps=2,
        batch_size=9,
        criterion="objective",
        criterion_rounds=40,
        centralized_steps=10,
        centralized_batch=32,
        local_client=0,
        held_out=(9, 10, 11),
        cuts=(1e-4, 1e-2),
        sessions=(12, 12, 12, 12, 11, 12),
        grid=(40, 64, 64),
        num_voxels=39_912,
        share_true=0.01,
        effect=0.5,
        effect_spread=0.0,
    )


def quick(config):
    """Shrinks the run to under a minute on a laptop."""
    config.algorithms = ("fed_dual_avg", "fed_mid", "fed_avg_subgradient", "centralized", "local")
    config.client_lr = (0.001, 0.01)
    config.server_lr = (1.0,)
    config.num_rounds = 100
    config.criterion_rounds = 40
    config.seeds = (0,)
    config.cohort_size = 6
    config.sessions = (4, 4, 4)
    config.grid = (8, 12, 12)
    config.num_voxels = 600
    config.share_true = 0.05


def problem(config):
    """The sessions that train and those that judge."""
    if not config.data_dir:
        return fmri_surrogate(
            sessions=tuple(config.sessions),
            grid=tuple(config.grid),
            num_voxels=config.num_voxels,
            share_true=config.share_true,
            effect=config.effect,
            effect_spread=config.effect_spread,
            cuts=tuple(config.cuts),
            seed=config.data_seed,
        )
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        pooled = loaders.haxby_npz(packed).pooled
        sessions = np.unique(np.asarray(pooled.client))
        judges = np.isin(np.arange(sessions.size), config.held_out)
        train, validation = (
            loaders.of_sessions(pooled, sessions[which].tolist()) for which in (~judges, judges)
        )
    else:
        train = loaders.haxby(config.data_dir, subjects=(1, 2, 3, 4, 5)).pooled
        validation = loaders.haxby(config.data_dir, subjects=(6,)).pooled
    return logistic(
        loaders.by_client(train), loaders.by_client(validation), cuts=tuple(config.cuts)
    )


def penalty(config):
    """The l1 norm of the weights; the bias stays free."""
    del config
    return on_subtree(l1(), named("kernel"))


def centralized(config, problem):
    """All scans pooled, as one client."""
    work = fcojax.local_steps(config.centralized_steps, config.centralized_batch)
    return Setting(_one_client(problem, 0, problem.train.num_clients), fcojax.everyone(), work)


def local(config, problem):
    """The scans of one session."""
    own, work = config.local_client, fcojax.local_steps(config.num_steps, config.batch_size)
    return Setting(_one_client(problem, own, own + 1), fcojax.everyone(), work)


def _one_client(problem, first, last):
    """One client with the examples of the clients from the first up to the last, left out."""
    bounds = np.asarray(problem.train.offsets)[[first, last]]
    rows = slice(*bounds.tolist())
    examples = {name: np.asarray(values)[rows] for name, values in problem.train.examples.items()}
    return fcojax.from_clients([examples])


def claims(config, rows, summary):
    """What the paper says of Figures 1 and 5."""
    entries = summary["algorithms"]
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    found = {}
    for label, entry in entries.items():
        mine = [row for row in rows if row["algorithm"] == label]
        by_point = curves(mine, list(entry["best"]))
        accuracies = [score(seeds, judge) for seeds in by_point.values()]
        found[label] = {
            "accuracy": score(by_point[tuple(entry["best"].values())], judge),
            "share": float(np.mean(np.array(accuracies) >= 0.99 * max(accuracies))),
            "density": entry["last"].get("density", float("nan")),
        }
    if "fed_dual_avg" not in found:
        return []
    ours = found["fed_dual_avg"]
    result = []
    for other, needed in (("centralized", -0.02), ("local", 0.0), ("fed_avg_subgradient", 0.0)):
        if other in found:
            lead = ours["accuracy"] - found[other]["accuracy"]
            text = f"accuracy of FedDualAvg minus that of {style(other)[0]}"
            result.append(Claim(text, lead, needed))
    if "fed_mid" in found:
        ratio = found["fed_mid"]["density"] / max(ours["density"], 1e-9)
        result.append(Claim("density of FedMiD over that of FedDualAvg", ratio, 1.0))
    rivals = [
        found[label]["share"]
        for label in found
        if label not in ("fed_dual_avg", "centralized", "local")
    ]
    if rivals:
        text = "share of the grid within one per cent of the best accuracy: FedDualAvg's lead"
        result.append(Claim(text, ours["share"] - max(rivals), 0.0))
    return result


def draw(config, rows, summary, directory):
    """Accuracy over the rates; and the weights on the grid of voxels."""
    entries = summary["algorithms"]
    drawn = []
    if rows:
        heat.maps(
            directory / "accuracy.png",
            {label: [row for row in rows if row["algorithm"] == label] for label in entries},
            {label: list(entry["best"]) for label, entry in entries.items()},
            Criterion("accuracy", "max", config.criterion_rounds),
        )
        drawn.append(directory / "accuracy.png")
    voxels, grid = places(config)
    images = {}
    for label in entries:
        saved = directory.parent / "models" / f"{label}.npz"
        if saved.exists():
            with np.load(saved) as arrays:
                images[label] = on_grid(arrays["kernel"], voxels, grid)
    if images:
        drawn.append(draw_maps(images, directory / "weights.png"))
    return drawn


def draw_maps(images, path):
    """One map an algorithm, in the slice with most weight, in units of its own largest weight."""
    mass = sum(np.nansum(np.abs(image), axis=(0, 1)) / _largest(image) for image in images.values())
    level = int(np.argmax(mass))
    num_lines = -(-len(images) // 4)
    figure, grid = axes.panels(4, num_lines, height=1.9)
    figure.set_layout_engine("constrained")
    for axis in grid:
        axis.set_axis_off()
    shown = None
    for axis, (label, image) in zip(grid, images.items(), strict=False):
        axis.imshow(np.isnan(image[:, :, level]), cmap="Greys", vmin=-0.15, vmax=6)
        shown = axis.imshow(image[:, :, level] / _largest(image), cmap="RdBu_r", vmin=-1, vmax=1)
        axis.set_title(style(label)[0], fontsize=8.5)
    bar = figure.colorbar(shown, ax=grid, location="bottom", shrink=0.5, aspect=40)
    bar.set_label("weight over the largest one", fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    figure.suptitle(f"Weights in slice {level} of the voxel grid", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _largest(image) -> float:
    return max(float(np.nanmax(np.abs(image))), 1e-12)


def places(config) -> tuple[np.ndarray, tuple[int, ...]]:
    """Where each feature lies in the grid, and the grid's shape."""
    if not config.data_dir:
        return brain_voxels(tuple(config.grid), config.num_voxels), tuple(config.grid)
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        scans = loaders.haxby_npz(packed)
        return scans.voxels, scans.grid
    import nibabel

    mask = nibabel.load(pathlib.Path(config.data_dir) / "haxby2001" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) != 0  # pyright: ignore[reportAttributeAccessIssue]
    return np.argwhere(inside), inside.shape


EXPERIMENT = Sweep(
    title="Faces against houses: sparse logistic regression on fMRI scans",
    problem=problem,
    penalty=penalty,
    panels=PANELS,
    algorithms={
        "centralized": Variant(fcojax.algorithms.fed_dual_avg, centralized),
        "local": Variant(fcojax.algorithms.fed_dual_avg, local),
    },
    claims=claims,
    figures=draw,
    solve_optimum=False,  # 39,912 weights and 1,062 scans: longer than all runs together
)
