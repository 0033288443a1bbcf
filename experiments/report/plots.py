"""Figures of rows over rounds; they draw only values that the rows contain."""

import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from experiments.report import axes
from experiments.report.look import name_of
from experiments.report.names import symbol
from experiments.report.rows import Row, by_seed, column
from experiments.report.summary import curves

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
# For algorithms outside the library.
_SPARE_COLOURS = (
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#882255",
    "#44AA99",
    "#332288",
    "#DDCC77",
    "#661100",
    "#56B4E9",
    "#D55E00",
    "#0072B2",
    "#000000",
    "#117733",
    "#AA4499",
    "#999933",
    "#6699CC",
    "#999999",
    "#555555",
)
_SPARE_LINES = ("-.", ":")


Over = Literal["round", "bytes_up", "bytes_down", "hours"]


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
    over: Over = "round"
    early: bool = False


class Line(NamedTuple):
    """One algorithm in one panel.

    Attributes:
      label: its name and its own hyperparameters.
      colour: its colour, as matplotlib writes it.
      line: its line style, as matplotlib writes it.
      across: the horizontal positions.
      values: the values, axes [seeds, positions]; NaN where they were not finite.
      ends: the last position and value of each seed that diverged.
    """

    label: str
    colour: str
    line: str
    across: np.ndarray
    values: np.ndarray
    ends: Sequence[tuple[float, float]]


def style(algorithm: str, among: Iterable[str] = ()) -> tuple[str, str, str]:
    """Return name, colour and line style of an algorithm, the same in every figure.

    An algorithm outside the library is named by its label, in a colour that no other algorithm in
    ``among`` has. If the colours run out, the line styles differ.

    Example:
      >>> style("mine", ["fed_dual_avg", "mine"])[1] != style("fed_dual_avg")[1]
      True
    """
    if algorithm in _STYLES:
        name, colour, line = _STYLES[algorithm]
        return name_of(algorithm, name), colour, line
    known = {_STYLES[label][1] for label in among if label in _STYLES}
    free = [colour for colour in _SPARE_COLOURS if colour not in known] or [*_SPARE_COLOURS]
    unknown = list(dict.fromkeys(label for label in (*among, algorithm) if label not in _STYLES))
    cycle, position = divmod(unknown.index(algorithm), len(free))
    return name_of(algorithm, algorithm), free[position], _SPARE_LINES[cycle % len(_SPARE_LINES)]


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
    a run diverged.

    Args:
      path: the PNG; a PDF is written beside it.
      panels: the panels, left to right.
      best_rows: the rows of the point that is shown, for each algorithm.
      title: the heading.
      fields: the hyperparameters that the legend names, for each algorithm.
      optimum: measures of the optimum, drawn as a line in their panels.
    """
    columns = axes.columns_for(len(panels))
    figure, places = axes.panels(columns, -(-len(panels) // columns))
    spare = places[len(panels)] if len(places) > len(panels) else None
    widths = np.linspace(2.6, 1.2, len(best_rows))
    for axis, panel in zip(places, panels, strict=False):
        drawn = list(lines(panel, best_rows, fields))
        positive = [one.values[one.values > 0].min(initial=np.inf) for one in drawn]
        # Values that are zero up to rounding, or just below, stay visible at the foot.
        least = min(positive) if panel.log else -np.inf
        for one, width in zip(drawn, widths, strict=True):
            # A logarithmic axis has no round 0, whose values must not widen the other axis.
            on = one.across > 0 if is_log_across(panel) else slice(None)
            look = {"color": one.colour, "label": one.label, "linewidth": width}
            axes.band(axis, one.across[on], np.maximum(one.values[:, on], least), one.line, **look)
            for end in one.ends:
                axis.plot(*end, "x", color=one.colour, markersize=7)
        if optimum and optimum.get(panel.measure) is not None:
            axis.axhline(
                optimum[panel.measure],
                color="#555555",
                linestyle=":",
                linewidth=1.2,
                label="optimum",
            )
        log = "y" * panel.log + "x" * is_log_across(panel)
        axes.describe(axis, across_label(panel), panel.label, log=log, whole=panel.whole)
    title = f"{title} ({conditions(best_rows, fields)})"
    return axes.finish(figure, path, title, num_columns=2, spare=spare)


def over_clients(path: pathlib.Path, spreads: Sequence[Row], title: str) -> pathlib.Path:
    """Draw the spread of the loss over the clients, a line for each model.

    Args:
      path: the PNG; a PDF is written beside it.
      spreads: the rows of ``tables.by_client``.
      title: the heading.
    """
    figure, (axis,) = axes.panels(1, height=0.8 + 0.3 * len(spreads))
    places = -np.arange(len(spreads))
    low, high = (column(spreads, f"{share}th percentile") for share in (10, 90))
    axis.hlines(places, low, high, color="#999999", label="80 per cent of the clients")
    axis.plot(column(spreads, "median"), places, "o", color="#0072B2", label="median")
    axis.plot(column(spreads, "worst tenth"), places, "x", color="#D55E00", label="worst tenth")
    axis.set_yticks(places, [f"{row['algorithm']}, {row['model']} model" for row in spreads])
    axis.margins(y=0.2)
    axes.describe(axis, "loss of a client", "")
    return axes.finish(figure, path, title)


def conditions(
    best_rows: Mapping[str, list[Row]],
    fields: Mapping[str, Sequence[str]],
    named: Callable[[str], str] = symbol,
) -> str:
    """Return the hyperparameters that all algorithms share, and the number of seeds.

    Args:
      best_rows: the rows of the point that is shown, for each algorithm.
      fields: the hyperparameters that the legend names, for each algorithm.
      named: the name of a hyperparameter.
    """
    seeds = len({row["seed"] for rows in best_rows.values() for row in rows})
    shared = _shared_hparams(best_rows, fields)
    given = [f"{named(field)} = {value:.3g}" for field, value in shared.items()]
    return ", ".join([*given, f"mean and range of {seeds} seeds" if seeds > 1 else "one seed"])


def across_label(panel: Panel) -> str:
    """Return the label of the horizontal axis."""
    return _ACROSS.get(panel.over, "communication round")


def is_log_across(panel: Panel) -> bool:
    """Whether the horizontal axis is logarithmic: in bytes methods differ by orders of magnitude.

    Example:
      >>> is_log_across(Panel("f1", "F1 score", over="bytes_up"))
      True
    """
    return panel.early or panel.over != "round"


def lines(
    panel: Panel,
    best_rows: Mapping[str, list[Row]],
    fields: Mapping[str, Sequence[str]],
    named: Callable[[str], str] = symbol,
) -> Iterator[Line]:
    """Yield each algorithm's line in a panel.

    Args:
      panel: the measure and the axes.
      best_rows: the rows of the point that is shown, for each algorithm.
      fields: the hyperparameters that the legend names, for each algorithm.
      named: the name of a hyperparameter.
    """
    shared = _shared_hparams(best_rows, fields)
    for algorithm, rows in best_rows.items():
        name, colour, line = style(algorithm, best_rows)
        names = [field for field in fields[algorithm] if field not in shared]
        own = [f"{named(field)} = {rows[0][field]:.3g}" for field in names]
        across, values = _stacked(rows, fields[algorithm], panel)
        label = f"{name} ({', '.join(own)})" if own else name
        yield Line(label, colour, line, across, values, list(_ends(rows, panel)))


_ACROSS = {
    "bytes_up": "megabytes sent up",
    "bytes_down": "megabytes sent down",
    "hours": "simulated hours",
}


def _across(rows: Iterable[Row], panel: Panel) -> np.ndarray:
    """Return the horizontal positions of rows."""
    return column(rows, panel.over) * (1e-6 if panel.over.startswith("bytes") else 1)


def _ends(rows: Sequence[Row], panel: Panel) -> Iterator[tuple[float, float]]:
    """Yield the position and value of the last finite number of each seed that diverged."""
    for curve in by_seed(rows).values():
        curve.sort(key=lambda row: row["round"])
        finite = [row for row in curve if row.get(panel.measure) is not None]
        if finite and str(curve[-1]["status"]).startswith("diverged"):
            yield _across(finite[-1:], panel)[0], finite[-1][panel.measure]


def _shared_hparams(
    best_rows: Mapping[str, list[Row]], fields: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the hyperparameters whose value all algorithms share, for the title."""
    first = next(iter(best_rows.values()))[0]
    return {
        field: first[field]
        for field in next(iter(fields.values()))
        if len(best_rows) > 1
        and all(rows[0].get(field) == first[field] for rows in best_rows.values())
    }


def _stacked(
    rows: Sequence[Row], fields: Sequence[str], panel: Panel
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions, and the values with axes [seeds, positions], NaN where null."""
    (seeds,) = curves(rows, fields).values()
    values = [column(curve, panel.measure) for curve in seeds.values()]
    # Each seed draws its own cohorts, so the bytes of a round may differ.
    across = np.mean([_across(curve, panel) for curve in seeds.values()], axis=0)
    return across, np.array(values)
