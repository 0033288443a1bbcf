"""Names in figures and tables; figures of a sweep: curves over rounds, scores over two rates."""

import html
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm, to_hex
from matplotlib.patches import Rectangle

from experiments.report import axes
from experiments.report.rows import Row, by_seed, column
from experiments.report.summary import Criterion, curves, score

# Okabe and Ito's palette, for colour-blind readers. Each algorithm has one colour in all figures,
# and a line style for prints in black and white.
_STYLES = {
    "fed_dual_avg": ("FedDualAvg", "#0072B2", "-"),
    "fed_dual_avg_osp": ("FedDualAvg-OSP", "#56B4E9", "--"),
    "fed_dual_avg_tracking": ("FedDualAvg, tracking", "#0072B2", "--"),
    "fed_mid": ("FedMiD", "#D55E00", "-"),
    "fed_mid_osp": ("FedMiD-OSP", "#E69F00", "--"),
    "fast_fed_dual_avg": ("Fast-FedDualAvg", "#009E73", "-"),
    "c_fed_dual_avg": ("C-FedDualAvg", "#CC79A7", "--"),
    "mc_fed_dual_avg": ("MC-FedDualAvg", "#CC79A7", "-"),
    "fast_end_points": ("Fast-FedDualAvg, end points", "#009E73", ":"),
    "fe_dual_ex": ("FeDualEx", "#009E73", "-"),
    "fed_mip": ("FedMiP", "#E69F00", "--"),
    "fed_avg": ("FedAvg", "#000000", "-"),
    "fed_avg_subgradient": ("FedAvg, subgradient", "#999999", "--"),
    "fed_pd": ("FedPD", "#CC79A7", "-"),
    "fed_dyn": ("FedDyn", "#009E73", "--"),
    # Tol's muted palette, for methods with drift correction, drawn beside those above.
    "composite_fl": ("Composite FL", "#882255", "-"),
    "scaffold": ("SCAFFOLD", "#117733", "-"),
    "fast_scaffold": ("SCAFFOLD, momentum", "#117733", ":"),
    "mime": ("Mime", "#661100", "-"),
    "prox_skip": ("ProxSkip", "#AA4499", "-"),
    "fed_normal_map": ("Normal map", "#999933", "-"),
    "fed_dr": ("FedDR", "#332288", "-"),
    "fed_admm": ("FedADMM", "#44AA99", "-"),
    "fed_mid_adam": ("FedMiD, Adam on the server", "#882255", "-."),
    "fed_mid_lamb": ("FedMiD, LAMB on the server", "#44AA99", "-."),
    "fed_dual_avg_adam": ("FedDualAvg, Adam on the server", "#332288", "-"),
    "fed_dual_avg_lamb": ("FedDualAvg, LAMB on the server", "#117733", "-"),
    "prox_gd": ("ProxGD, centralised", "#555555", ":"),
    "minibatch": ("mirror descent with minibatches", "#555555", "-."),
    "mirror_descent": ("mirror descent, centralised", "#555555", "--"),
    "dual_averaging": ("dual averaging, centralised", "#555555", "-"),
    "fed_manifold": ("FedManifold", "#009E73", "-"),
    "r_fed_avg": ("RFedAvg", "#D55E00", "--"),
    "r_fed_prox": ("RFedProx", "#E69F00", "-."),
    "r_fed_svrg": ("RFedSVRG", "#CC79A7", "--"),
    "centralized": ("centralised", "#000000", ":"),
    "local": ("local, one client", "#CC79A7", ":"),
}
# For algorithms outside the library: colours that none of these has.
_SPARE = [to_hex(matplotlib.colormaps["tab20"](place)) for place in range(20)]

# Words and symbols for quantities, instead of identifiers.
_SYMBOLS = {
    "client_lr": ("client rate", r"\eta_c"),
    "server_lr": ("server rate", r"\eta_s"),
    "penalty_scale": ("strength", r"\lambda"),
    "prox_step": ("prox step", r"\eta"),
    "alpha": ("regularisation", r"\alpha"),
}
_WORDS = {
    "f1": "F1 score",
    "r2": "R2",
    "error_fro": "Frobenius error",
    "rmse": "root mean squared error",
    "validation_loss": "validation loss",
    "violation": "KKT violation",
    "suboptimality": r"$\Phi - \Phi^*$",
    "bytes_up": "bytes sent up",
    "bytes_down": "bytes sent down",
    "hours": "simulated hours",
}

_RATES = ("client_lr", "server_lr")
_CROSS: dict[str, Any] = {"marker": "x", "linestyle": "", "color": "#D55E00", "markersize": 8}
_DIVERGED: dict[str, Any] = {"facecolor": "white", "edgecolor": "#999999", "hatch": "////"}
_STOPPED = "#DDDDDD"
_SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)  # of the distance to the best score, at ticks of the colours

ACROSS = {
    "round": "communication round",
    "bytes_up": "megabytes sent up",
    "bytes_down": "megabytes sent down",
    "hours": "simulated hours",
}


class Panel(NamedTuple):
    """One set of axes: a column of the rows over the rounds, or over the bytes sent.

    Attributes:
      measure: the column.
      label: the label of the vertical axis, with the unit if there is one.
      log: whether the vertical axis is logarithmic.
      whole: whether ticks are whole numbers, as for counts.
      over: the column on the horizontal axis; bytes are shown in megabytes, summed over clients;
        hours need a clock.
      early: whether the horizontal axis is logarithmic, for what happens in the first rounds.
    """

    measure: str
    label: str
    log: bool = False
    whole: bool = False
    over: str = "round"
    early: bool = False


def style(algorithm: str, among: Iterable[str] = ()) -> tuple[str, str, str]:
    """Return name, colour and line style of an algorithm, the same in every figure.

    An algorithm outside the library is named by its label, and has a colour that differs from
    those of the others in ``among``, up to twenty.

    Example:
      >>> style("mine", ["fed_dual_avg", "mine"])[1] != style("fed_dual_avg")[1]
      True
    """
    unknown = dict.fromkeys(label for label in (*among, algorithm) if label not in _STYLES)
    place = list(unknown).index(algorithm) if algorithm in unknown else 0
    spare = algorithm, _SPARE[2 * place % len(_SPARE) + place // 10 % 2], "-."
    name, colour, line = _STYLES.get(algorithm, spare)
    return axes.name_of(algorithm, name), colour, line


def symbol(name: str) -> str:
    """Return the symbol of a hyperparameter between dollars, or its name in words."""
    return f"${_SYMBOLS[name][1]}$" if name in _SYMBOLS else words(name)


def words(name: str) -> str:
    """Return the name of a column in words.

    Example:
      >>> words("client_lr"), words("f1"), words("sync_prob")
      ('client rate', 'F1 score', 'sync prob')
    """
    if name in _SYMBOLS:
        return _SYMBOLS[name][0]
    return _WORDS.get(name, name.replace("_", " "))


def without_math(label: str) -> str:
    r"""Return a label of a figure as plain text, with Greek letters instead of mathematics.

    Example:
      >>> without_math(r"$\Phi - \Phi^*$"), without_math("cost in $")
      ('Φ - Φ*', 'cost in $')
    """

    def letters(found: re.Match) -> str:
        named = re.sub(r"\\(\w+)", lambda letter: html.unescape(f"&{letter[1]};"), found[1])
        return named.replace("^*", "*")

    return re.sub(r"\$([^$]*\\[^$]*)\$", letters, label)


def over_rounds(
    path: pathlib.Path,
    panels: Sequence[Panel],
    best_rows: dict[str, list[Row]],
    title: str,
    fields: Mapping[str, Sequence[str]],
    optimum: Mapping[str, float] | None = None,
) -> pathlib.Path:
    """Draw one panel per measure, with a line and a band over the seeds for each algorithm.

    Lines are drawn from wide to narrow, so that coinciding lines stay visible. A cross marks where
    a run diverged. The legend names the hyperparameters in ``fields``, the heading those that all
    algorithms share; measures of the optimum are lines in their panels.
    """
    firsts = [rows[0] for rows in best_rows.values()]
    shared = {
        field: firsts[0][field]
        for field in next(iter(fields.values()))
        if len(firsts) > 1 and all(row.get(field) == firsts[0][field] for row in firsts)
    }
    labels = {
        name: [f"{symbol(f)} = {rows[0][f]:.3g}" for f in fields[name] if f not in shared]
        for name, rows in best_rows.items()
    }
    figure, places = axes.grid_of(len(panels))
    for axis, panel in zip(places, panels, strict=False):
        # In bytes methods differ by orders of magnitude.
        log_across = panel.early or panel.over != "round"
        every = [column(rows, panel.measure) for rows in best_rows.values()]
        positive = min(values[values > 0].min(initial=np.inf) for values in every)
        # Values that are zero up to rounding, or just below, stay visible at the foot.
        least = positive if panel.log else -np.inf
        widths = np.linspace(2.6, 1.2, len(best_rows))
        for (algorithm, rows), width in zip(best_rows.items(), widths, strict=True):
            name, colour, line = style(algorithm, best_rows)
            across, values, ends = _curves(rows, panel)
            # A logarithmic axis has no round 0, whose values must not widen the other axis.
            on = across > 0 if log_across else slice(None)
            own = labels[algorithm]
            look = {"color": colour, "label": f"{name} ({', '.join(own)})" if own else name}
            values = np.maximum(values[:, on], least)
            axes.band(axis, across[on], values, line, linewidth=width, **look)
            for end in ends:
                axis.plot(*end, "x", color=colour, markersize=7)
        if optimum and optimum.get(panel.measure) is not None:
            look = {"color": "#555555", "linestyle": ":", "linewidth": 1.2, "label": "optimum"}
            axis.axhline(optimum[panel.measure], **look)
        log = "y" * panel.log + "x" * log_across
        axes.describe(axis, ACROSS[panel.over], panel.label, log=log, whole=panel.whole)
    seeds = len({row["seed"] for rows in best_rows.values() for row in rows})
    told = [f"{symbol(field)} = {value:.3g}" for field, value in shared.items()]
    told += [f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"]
    return axes.finish(figure, path, f"{title} ({', '.join(told)})", num_columns=2)


def score_table(
    rows: Sequence[Row], fields: Sequence[str], criterion: Criterion
) -> tuple[np.ndarray, list[float], list[float]]:
    """Return the best score at each pair of rates, over all other fields, and the rates.

    Scores are infinite for points that diverged, and NaN for those that were stopped before the
    last round.
    """
    end = max(row["round"] for row in rows)
    places = [fields.index(field) for field in _RATES]
    firsts, seconds = (sorted({row[field] for row in rows}) for field in _RATES)
    table = np.full((len(firsts), len(seconds)), np.nan)
    better = np.fmax if criterion.goal == "max" else np.fmin
    for point, seeds in curves(rows, fields).items():
        first, second = (point[place] for place in places)
        value = score(seeds, criterion)
        stopped = math.isfinite(value) and any(curve[-1]["round"] < end for curve in seeds.values())
        cell = firsts.index(first), seconds.index(second)
        table[cell] = better(table[cell], math.nan if stopped else value)
    return table, firsts, seconds


def over_rates(
    path: pathlib.Path,
    rows: Mapping[str, Sequence[Row]],
    best: Mapping[str, Mapping[str, float]],
    criterion: Criterion,
) -> pathlib.Path | None:
    """Draw the score over two rates, a map for each algorithm that has several values of both.

    A cross marks the reported point, and points that diverged are hatched. Colours show the
    logarithm of the distance to the best score of all maps: 0.98 and 1 differ visibly even if 0.1
    is on the same map. Without such an algorithm there is no figure.
    """
    tables = {
        label: score_table(own, list(best[label]), criterion)
        for label, own in rows.items()
        if all(len({row.get(field) for row in own} - {None}) > 1 for field in _RATES)
    }
    if not tables:
        return None
    every = np.concatenate([table.ravel() for table, _, _ in tables.values()])
    finite = every[np.isfinite(every)] if np.isfinite(every).any() else np.zeros(1)
    sign = -1 if criterion.goal == "max" else 1
    top = sign * (sign * finite).min()
    distances = np.abs(finite - top)
    # Points that nearly diverged must not give all others the same colour.
    span = min(distances.max(), 3 * np.median(distances)) or distances.max() or 1.0
    figure, grid = axes.grid_of(len(tables), height=1.9)
    shown = None
    for axis, (label, (table, *values)) in zip(grid, tables.items(), strict=False):
        axis.patch.set(**_DIVERGED)
        axis.grid(visible=False)
        look: dict[str, Any] = {"origin": "lower", "aspect": "auto"}
        axis.imshow(np.where(np.isnan(table), 0.0, np.nan), cmap=ListedColormap([_STOPPED]), **look)
        away = np.maximum(np.abs(np.ma.masked_invalid(table) - top) / span, _SHARES[0])
        shown = axis.imshow(away, cmap="cividis_r", norm=LogNorm(_SHARES[0], 1.0), **look)
        up, at = (own.index(best[label][field]) for own, field in zip(values, _RATES, strict=True))
        axis.plot(at, up, **_CROSS | {"color": "white"}, markeredgewidth=4)
        told = f"reported point, best by {words(criterion.measure)}"
        axis.plot(at, up, **_CROSS, markeredgewidth=2, label=told)
        ylabel, xlabel = (f"{words(field)} {symbol(field)}" for field in _RATES)
        axis.set(title=style(label)[0], ylabel=ylabel, xlabel=xlabel)
        axis.set_yticks(*_ticks(values[0]))
        axis.set_xticks(*_ticks(values[1]))
        axis.label_outer()
    if np.isinf(every).any():
        grid[0].add_patch(Rectangle((0, 0), 0, 0, label="diverged", **_DIVERGED))
    if np.isnan(every).any():
        grid[0].add_patch(Rectangle((0, 0), 0, 0, label="stopped early", color=_STOPPED))
    extend = "max" if distances.max() > span else "neither"
    bar = figure.colorbar(shown, ax=grid, shrink=0.8, extend=extend)
    bar.ax.invert_yaxis()  # the best on top
    scores = [top, *(top + sign * share * span for share in _SHARES[1:])]
    bar.set_ticks(_SHARES, labels=[f"{value:.4g}" for value in scores])
    bar.minorticks_off()
    bar.set_label(f"{words(criterion.measure)}, mean of the last {criterion.last_rounds} rounds")
    return axes.finish(figure, path, "")


def _ticks(values: Sequence[float]) -> tuple[list[int], list[str]]:
    """Return places and labels of ticks; of many values only powers of ten are labelled."""
    shown = {
        place: f"{float(f'{value:.2g}'):g}"
        for place, value in enumerate(values)
        if len(values) <= 6 or math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)
    }
    return list(shown), list(shown.values())


def _curves(
    rows: Sequence[Row], panel: Panel
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Return positions, values with axes [seeds, positions], and where seeds diverged.

    Values are NaN where they were not finite; a seed that diverged ends at its last finite value.
    """
    seeds = [sorted(own, key=lambda row: row["round"]) for own in by_seed(rows).values()]
    unit = 1e-6 if panel.over.startswith("bytes") else 1.0
    across = unit * np.array([column(curve, panel.over) for curve in seeds])
    values = np.array([column(curve, panel.measure) for curve in seeds])
    ends = [
        (places[finite][-1], own[finite][-1])
        for curve, places, own in zip(seeds, across, values, strict=True)
        if (finite := np.isfinite(own)).any() and curve[-1]["status"].startswith("diverged")
    ]
    # Each seed draws its own cohorts, so the bytes of a round may differ.
    return across.mean(axis=0), values, ends
