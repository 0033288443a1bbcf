"""Scores of our fits with their intervals, beside the published ones."""

from pathlib import Path

from fcojax.experiments import Config, Row, Summary, axes

_TITLES = {
    "fed_tcga_brca": "TCGA-BRCA: survival in six regions",
    "fed_heart_disease": "Heart Disease: four hospitals",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one figure for each benchmark."""
    found = []
    for name in config.datasets:
        table = summary[name][::-1]
        figure, [axis] = axes.panels(1, height=0.19 * len(table) + 0.9)
        for height, entry in enumerate(table):
            ours = entry.get("from") is not None
            colour, marker = ("#0072B2", "o") if ours else ("#D55E00", "D")
            label = "ours, with the 95 % interval over test rows" if ours else "published by FLamby"
            if ours:
                axis.plot([entry["from"], entry["to"]], [height] * 2, color=colour, linewidth=1.2)
            axis.plot(entry["silos"], height, marker, color=colour, markersize=4, label=label)
        texts = [entry["fit"].removesuffix(", as FLamby has it") for entry in table]
        axis.set_yticks(range(len(table)), texts)
        axis.set_ylim(-0.8, len(table) - 0.2)
        what = "C-index" if name == "fed_tcga_brca" else "accuracy"
        axes.describe(axis, f"mean {what} over the silos' test rows", "")
        found.append(axes.finish(figure, directory / f"{name}.png", _TITLES[name], 2))
    return found
