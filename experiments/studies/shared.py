"""What studies share: problems, sweeps as arrays, and figures of curves."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report import axes
from experiments.report.rows import Row, by_seed, column
from experiments.report.summary import RIGHT, SUPPORT
from experiments.study import Config
from fcojax import datasets
from fcojax.algorithms import Algorithm, Work, fed_mid, takes
from fcojax.algorithms.dual_averages import FedDualAvgHparams
from fcojax.datasets.reading import optional
from fcojax.extend import Seed, words
from fcojax.problems import ClientData, Problem
from fcojax.problems.losses import Loss
from fcojax.transforms import Mirror, Penalty
from fcojax.types import Array, Params

# Two constants in the hash of a kernel's entries.
_CODES = 0x9E3779B9, 0x7F4A7C15


def one_client(problem: Problem, first: int = 0, end: int | None = None) -> ClientData:
    """Merge the clients from ``first`` up to, but not including, ``end`` into one client."""
    offsets = np.asarray(problem.train.offsets)
    rows = slice(offsets[first], offsets[-1 if end is None else end])
    examples = {name: np.asarray(values)[rows] for name, values in problem.train.examples.items()}
    return fcojax.from_clients([examples])


@takes(FedDualAvgHparams, "mirror")
def mirror_descent(loss: Loss, mirror: Mirror) -> Algorithm:
    """Composite mirror descent, a centralised reference: FedMiD with no prox on the server."""
    return fed_mid(loss, mirror, server_prox=False)


def with_support(problem: Problem, cut: float) -> Problem:
    """Return the problem with one more measure: a number that identifies the kernel's support.

    The number is a sum of hashes, modulo 2^32, of the indices of all entries whose magnitude is
    above ``cut``. Two different supports have the same number with probability 2^-32.
    """

    def measures(params):
        found = jnp.abs(params["kernel"]) > cut
        seed = Seed(jnp.array(_CODES, jnp.uint32))
        codes = words(seed, jnp.arange(found.size, dtype=jnp.int32))
        code = jnp.sum(jnp.where(found, codes.reshape(found.shape), 0), dtype=jnp.uint32)
        return problem.measures(params) | {SUPPORT: code}

    return problem._replace(measures=measures)


_MOST_EXAMPLES = 256  # in eight columns of 32 examples


def with_right(problem: Problem, right: Callable[[Params], Any], num_examples: int) -> Problem:
    """Return the problem with measures that say which held-out examples are right.

    32 examples make a column, a whole number with one bit for each. With more than 256 examples the
    problem is returned unchanged: so many decide by themselves, and would fill the rows.

    Args:
      problem: the problem.
      right: ``params -> booleans``, one for each example.
      num_examples: their number.
    """
    if num_examples > _MOST_EXAMPLES:
        return problem
    count = -(-num_examples // 32)

    def measures(params):
        bits = jnp.pad(right(params).astype(jnp.uint32), (0, 32 * count - num_examples))
        words = jnp.sum(bits.reshape(count, 32) << jnp.arange(32, dtype=jnp.uint32)[None], axis=1)
        return problem.measures(params) | {f"{RIGHT}{at}": words[at] for at in range(count)}

    return problem._replace(measures=measures)


def digits() -> dict[str, np.ndarray]:
    """Return scikit-learn's digits, with pixels from 0 to 1."""
    found = optional("sklearn.datasets", "data").load_digits()
    return {"x": found.data / 16, "y": found.target.astype(np.int32)}


def swept(
    algorithm: Any, grid: Any, start: Any, data: Any, seeds: Any, plan: Any, **options: Any
) -> dict[str, np.ndarray]:
    """Return the history of ``fcojax.sweep`` at these seeds, or keys, as arrays."""
    is_keys = isinstance(seeds, jax.Array)
    keys = seeds if is_keys else jax.vmap(jax.random.key)(jnp.asarray(seeds))
    _, history = fcojax.sweep(algorithm, grid, start, data, keys, plan, **options)
    return jax.tree.map(np.asarray, history)


def quantiles(gaps: np.ndarray) -> Row:
    """Return the mean of gaps over the seeds, and their quantiles at 10 and 90 per cent."""
    low, high = np.quantile(gaps, (0.1, 0.9))
    return {"gap": float(gaps.mean()), "low": float(low), "high": float(high)}


def least(scores: np.ndarray) -> int:
    """Return the place of the smallest score that is finite."""
    return int(np.argmin(np.where(np.isfinite(scores), scores, np.inf)))


def by_writer(config: Config) -> list[fcojax.ClientData]:
    """Return MNIST for training and for testing, of the config's share of the first writers."""
    splits = (datasets.mnist(config.data_dir, split) for split in ("train", "test"))
    both = (datasets.by_client(pooled, "examples") for pooled in splits)
    share = config.share_of_writers
    return [x.select(np.arange(max(1, round(share * x.num_clients)))) for x in both]


class Task(NamedTuple):
    """A problem, and the work of its clients.

    Attributes:
      loss: one loss per example.
      data: the clients.
      penalty: psi.
      scale: the strength of the penalty.
      start: the first point.
      work: the K local steps of a client in a round.
      observe: ``(hparams, model, optimum) -> dict``, the measures of a point.
      smoothness: the largest curvature of any client's loss; 0 if there is no bound.
      least_curvature: the smallest curvature of the mean of the clients' losses.
      optimum: the minimiser, if it is known.
    """

    loss: Loss
    data: fcojax.ClientData
    penalty: Penalty
    scale: float
    start: Params
    work: Work
    observe: Callable[[Any, Params, Any], dict[str, Array]]
    smoothness: float = 0.0
    least_curvature: float = 0.0
    optimum: Any = None

    def swept(
        self, algorithm: Algorithm, grid: Any, seeds: Any, plan: fcojax.Plan, *rounds: int
    ) -> dict[str, np.ndarray]:
        """Return the history of so many rounds, evaluated every so many, and the bytes so far."""
        given = algorithm, grid, self.start, self.data, seeds, plan
        options = dict(zip(("num_rounds", "eval_every"), rounds, strict=True))
        found = swept(*given, **options, observe=self.observe, context=self.optimum)
        so_far = {way: np.cumsum(found[way], axis=-1) for way in ("bytes_up", "bytes_down")}
        return found | so_far


class Curve(NamedTuple):
    """The mean of a column over the seeds, with the range; or with the columns low and high.

    Attributes:
      rows: the rows, of several seeds if they have one.
      y: the column.
      colour: the colour.
      label: the text in the legend.
      line: the line style and marker.
    """

    rows: Sequence[Row]
    y: str
    colour: Any
    label: str
    line: str = "-"


class Chart(NamedTuple):
    """Curves in one set of axes.

    Attributes:
      x: the column along the horizontal axis.
      labels: of the horizontal and of the vertical axis.
      curves: the curves.
      title: the heading.
      log: the logarithmic axes, as in ``"xy"``.
      level: the height of a dotted line, and its text.
      limits: of the vertical axis; with a logarithmic one, values below are drawn on it.
    """

    x: str
    labels: tuple[str, str]
    curves: Sequence[Curve]
    title: str = ""
    log: str = ""
    level: tuple[float, str] | None = None
    limits: tuple[float, float] | None = None


def figure(
    path: Path, title: str, charts: Sequence[Chart], columns: int = 0, height: float = 2.6
) -> list[Path]:
    """Draw charts in lines of so many columns, by default in one line, with one legend."""
    columns = columns or len(charts)
    drawn, places = axes.panels(columns, -(-len(charts) // columns), height)
    for at, (axis, chart) in enumerate(zip(places, charts, strict=False)):
        # Curves that coincide stay visible, as each is narrower than those before it.
        widths = np.linspace(2.2, 1.0, len(chart.curves))
        for (rows, y, colour, label, line), width in zip(chart.curves, widths, strict=True):
            seeds = list(by_seed(rows).values()) if "seed" in rows[0] else [rows]
            x = np.mean([column(one, chart.x) for one in seeds], axis=0)
            values = np.array([column(one, y) for one in seeds])
            if chart.limits and "y" in chart.log:
                values = np.maximum(values, chart.limits[0])
            look = {"color": colour, "label": label, "linewidth": width, "markersize": 3}
            axes.band(axis, x, values, line, **look)
            if y == "gap" and "low" in rows[0]:
                low, high = column(rows, "low"), column(rows, "high")
                axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        if chart.level:
            at_height, text = chart.level
            axis.axhline(at_height, color="#555555", linestyle=":", linewidth=1, label=text)
        # What is the same as in the chart on the left, above or below is said once.
        (across, up), above, below = chart.labels, chart.title, charts[at + columns :][:1]
        up = "" if at % columns and charts[at - 1].labels[1] == up else up
        above = "" if at >= columns and charts[at - columns].title == above else above
        across = "" if below and below[0].labels[0] == across else across
        axes.describe(axis, across, up, title=above, log=chart.log)
        if "x" in chart.log:  # texts at all places between powers of ten would overlap
            axis.xaxis.set_minor_formatter(axes.ticker.NullFormatter())
            if len(x) < 8:
                axis.set_xticks(x, [format(place, ".2g" if place % 1 else "g") for place in x])
        if chart.limits:
            axis.set_ylim(*chart.limits)
    return [axes.finish(drawn, path, title)]
