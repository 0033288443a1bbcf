"""Results as tables and figures."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def table_of(path: Any) -> str:
    """Return a line for each strength: its nonzero parameters, and how its solve ended."""
    lines = [f"{'strength':>10} {'nonzero':>8} {'rounds':>7} {'objective':>11}  verdict"]
    verdicts = [verdict.partition("; ") for verdict in path.outcome.verdicts()]
    rows = zip(
        np.asarray(path.strengths),
        np.asarray(path.num_nonzero),
        np.asarray(path.outcome.rounds),
        np.asarray(path.objective),
        verdicts,
        strict=True,
    )
    lines += [
        f"{strength:10.4g} {nonzero:8} {rounds:7} {objective:11.6g}  {verdict}"
        for strength, nonzero, rounds, objective, (verdict, _, _) in rows
    ]
    for advice in dict.fromkeys(advice for _, _, advice in verdicts if advice):
        number = sum(advice == other for _, _, other in verdicts)
        lines.append(f"{number} of {len(verdicts)}: {advice}")
    return "\n".join(lines)


def draw_path(
    path: Any, axes: Any = None, chosen: int | None = None, names: Sequence[str] | None = None
) -> Any:
    """Draw every parameter over the strength, with a vertical line at the chosen one.

    Lines are labelled by their index, as ``kernel[3]``. With names of features, the leaf with that
    number of entries has these labels and a legend.
    """
    axes = _axes(axes)
    strengths = np.asarray(path.strengths)
    for path_to, leaf in jax.tree_util.tree_leaves_with_path(path.models):
        leaf, name = np.asarray(leaf), jax.tree_util.keystr(path_to, simple=True, separator=".")
        for index in np.ndindex(leaf.shape[1:]):
            column = leaf[:, *index]
            if not column.any():
                continue
            label = name + "".join(f"[{i}]" for i in index)
            if names is not None and leaf.shape[1:] == (len(names),):
                label = names[index[0]]
            axes.plot(strengths, column, linewidth=1, label=label)
    _strength_axis(axes, strengths, chosen)
    axes.set_ylabel("parameter")
    if names is not None:
        axes.legend(frameon=False, fontsize="small")
    return axes


def draw_scores(selection: Any, axes: Any = None) -> Any:
    """Draw the mean loss over the strength, its error as one from the lowest, and the choice."""
    axes = _axes(axes)
    strengths = np.asarray(selection.path.strengths)
    mean, error = np.asarray(selection.mean), np.asarray(selection.standard_error)
    axes.errorbar(strengths, mean, error, fmt="o-", markersize=3, capsize=2, color="C0")
    axes.axvline(strengths[selection.best], color="0.6", linestyle=":", label="lowest")
    _strength_axis(axes, strengths, selection.chosen)
    axes.set_ylabel(selection.by)
    axes.legend(frameon=False)
    return axes


def _strength_axis(axes: Any, strengths: np.ndarray, chosen: int | None) -> None:
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_xlabel("strength of the penalty")
    if chosen is not None:
        axes.axvline(strengths[chosen], color="0.2", linestyle="--", label="chosen")


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    from matplotlib import pyplot  # an optional dependency

    return pyplot.subplots()[1]
