r"""Regression on tables of real sites, from sums alone: statistics, moments, checks and survival.

Sites keep their rows in their own units, with a mask of the values that are present; the common
mean and deviation of each column come with every request for moments, so a site needs no numbers of
the others beforehand. At a model a site sends the sums of its losses, gradients and Hessians. With
them the server takes Newton steps, and a path with all its folds takes about ten exchanges, where
rounds of gradients take thousands.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import from_rows, local_steps, problems, tree
from fcojax.algorithms import fed_mid_osp
from fcojax.extend import validated
from fcojax.problems import WholeBatchLoss
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, euclidean
from fcojax.types import Array, Count, Params, PyTree
from fcojax_sites.cox import cox
from fcojax_sites.flower.answers import Checked
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.sums import Sums

_LEAST_COUNT = 5  # of the rows in a cell of predicted risk; smaller ones are not drawn
_SLOPE_STEPS = 25


Kind = Literal["linear", "logistic", "poisson", "cox"]


@functools.cache
def loss_of(kind: Kind) -> Loss:
    """Return the loss of the problem of this name, of a dict of parameters.

    Args:
      kind: the name.
    """
    of_problem = cox if kind == "cox" else getattr(problems, kind)
    rows = {"x": np.zeros((2, 1)), "y": np.array([0, 1])}
    if kind != "cox":
        return of_problem(from_rows(rows, [2])).loss
    whole = of_problem(
        from_rows({"x": rows["x"], "time": np.ones(2), "event": rows["y"]}, [2])
    ).loss

    def loss(params, rows, weights):
        return whole.function(params["kernel"], rows, weights)

    return WholeBatchLoss(loss)


@validated
def tabular(loss: Kind, penalty: Penalty, num_features: Count, weights: Any = None) -> Federation:
    """Return the federation of a regression on tables, whose sites answer by sums.

    The rows of a site have ``x`` with 0 for a missing value, ``present`` with 1 where ``x`` has a
    value, and ``y``, or ``time`` and ``event`` for Cox regression.

    Args:
      loss: the regression.
      penalty: psi, of a dict with ``kernel`` and, except for Cox regression, ``bias``.
      num_features: number of columns of ``x``.
      weights: as for ``Federation``, which also says which sites may take part.

    Example:
      >>> import fcojax
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> federation = flower.tabular("logistic", on_subtree(l1(), named("kernel")), 3)
      >>> sorted(federation.sums)[:3]
      ['judged', 'moments', 'spread']
    """
    dtype = jnp.result_type(float)
    params: Params = {"kernel": jnp.zeros(num_features, dtype)}
    if loss != "cox":
        params["bias"] = jnp.zeros((), dtype)
    method = fed_mid_osp(loss_of(loss), euclidean(penalty))
    sums = {
        "totals": Checked(functools.partial(_totals, loss), functools.partial(_wrong_totals, loss)),
        "squares": Checked(functools.partial(_squares, _outcomes(loss)), _wrong_squares),
        "survival": Checked(_survival, _wrong_survival),
        "moments": Checked(
            functools.partial(_moments, loss), functools.partial(_wrong_moments, loss)
        ),
        "spread": Checked(functools.partial(_spread, loss), _wrong_spread),
        "judged": Checked(functools.partial(_judged, loss), _wrong_judged),
    }
    del sums["spread" if loss == "cox" else "survival"]
    return Federation(
        method,
        local_steps(1),
        method.hparams_type(),
        params,
        loss_of(loss),
        penalty,
        "examples" if weights is None else weights,
        sums,
    )


def _outcomes(loss: str) -> tuple[str, ...]:
    return ("time", "event") if loss == "cox" else ("y",)


class Statistics(NamedTuple):
    """Statistics of all sites together, from sums, and counts of each site.

    Attributes:
      rows: [sites], the rows with an outcome.
      left_out: [sites], the rows without an outcome, which are left out.
      missing: [sites, columns], the missing values.
      mean: [columns], over the values that are present.
      deviation: [columns], the standard deviation with denominator n; 0 for a constant column.
      outcome: the mean of each outcome, ``y`` or ``time`` and ``event``, and its deviation.
      events: [sites], the sum of the last outcome: cases of class 1, events, or counts.
      groups: [columns, 2, 2], for a column of 0 and 1 the rows with each, and their events; NaN for
        other columns, and all of them in linear regression.

    Example:
      >>> Statistics._fields[:3]
      ('rows', 'left_out', 'missing')
    """

    rows: np.ndarray
    left_out: np.ndarray
    missing: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    outcome: dict[str, tuple[float, float]]
    events: np.ndarray
    groups: np.ndarray

    @property
    def scaling(self) -> dict[str, np.ndarray]:
        """The ``mean`` and ``size`` by which all sites scale their columns."""
        return {"mean": self.mean, "size": np.where(self.deviation > 0, self.deviation, 1)}


_CONSTANT = 1e-12  # a deviation below this share of the mean is rounding


@validated
def statistics(sites: Sums) -> Statistics:
    """Return counts, means, variances and missing values, from two exchanges of sums.

    The variance is summed around the common mean, which the first exchange gives, so that columns
    far from zero lose no digits.

    Args:
      sites: the sites of a federation from ``tabular``, in this process or elsewhere.

    Example:
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> federation = flower.tabular("logistic", on_subtree(l1(), named("kernel")), 1)
      >>> rows = {name: {"x": np.array([[a], [3.0]]), "present": np.ones((2, 1)),
      ...                "y": np.array([0, 1])} for name, a in (("Ghent", 1.0), ("Lima", 5.0))}
      >>> found = flower.statistics(flower.Sums(federation, flower.in_process(federation, rows)))
      >>> found.mean.tolist(), found.deviation.round(3).tolist(), found.events.tolist()
      ([3.0], [1.414], [1.0, 1.0])
    """
    first = sites.ask("totals", part="statistics")
    total = {name: value.sum(axis=0) for name, value in first.items()}
    count = np.maximum(total["present"], 1)
    mean, outcome = total["sum"] / count, total["outcome"] / total["rows"]
    second = sites.ask("squares", {"mean": mean, "outcome": outcome}, "statistics")
    deviation = np.sqrt(second["squares"].sum(axis=0) / count)
    # In single precision 1000 rows of 0.1 have a deviation of 3e-7 of their mean.
    rounding = max(_CONSTANT, 100 * np.finfo(mean.dtype).eps) * np.abs(mean)
    deviation = np.where(deviation <= rounding, 0, deviation)
    spread = np.sqrt(second["outcome"].sum(axis=0) / total["rows"])
    names = ("y",) if len(outcome) == 1 else ("time", "event")
    groups = total.get("groups", np.full((len(mean), 2, 2), np.nan))
    return Statistics(
        rows=first["rows"],
        left_out=first["left_out"],
        missing=first["rows"][:, None] - first["present"],
        mean=mean,
        deviation=deviation,
        outcome={n: (float(a), float(b)) for n, a, b in zip(names, outcome, spread, strict=True)},
        events=first["outcome"][:, -1],
        groups=np.where(_is_binary(mean, deviation, groups), groups, np.nan),
    )


def _is_binary(mean: np.ndarray, deviation: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return which columns have no values but 0 and 1, [columns, 1, 1]."""
    share = groups[:, 1, 0] / np.maximum(np.sum(groups[:, :, 0], axis=1), 1)
    close = np.isclose(mean, share) & np.isclose(deviation**2, share * (1 - share), atol=1e-6)
    return close[:, None, None]


@validated
def survival(sites: Sums, grid: Any) -> dict[str, np.ndarray]:
    """Return the Kaplan-Meier curves of the sites, from numbers at risk and of events on a grid.

    The curves are those of the times rounded up to the grid.

    Args:
      sites: the sites of a federation from ``tabular("cox", ...)``.
      grid: increasing times.

    Returns:
      ``at_risk``, ``events`` and ``survival``, [sites, times].

    Example:
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> federation = flower.tabular("cox", on_subtree(l1(), named("kernel")), 1)
      >>> rows = {"x": np.zeros((4, 1)), "present": np.ones((4, 1)),
      ...         "time": np.array([1.0, 2.0, 3.0, 9.0]), "event": np.array([1, 0, 1, 0])}
      >>> sites = flower.Sums(federation, flower.in_process(federation, {"Ghent": rows}))
      >>> of = survival(sites, [1.0, 3.0])
      >>> of["survival"].round(3).tolist()  # 3 of 4, then 2 of the 3 that are left
      [[0.75, 0.5]]
    """
    found = sites.ask("survival", {"grid": np.asarray(grid, float)})
    share = 1 - found["events"] / np.maximum(found["at_risk"], 1)
    return found | {"survival": np.cumprod(share, axis=1)}


CUTS = (0.1, 0.2, 0.3, 0.5, 0.7)  # of predicted chances, for the calibration


@validated
def judged(sites: Sums, found: Statistics, models: Sequence[Params]) -> dict[str, np.ndarray]:
    """Return how well the model for each site, such as one fitted without it, predicts there.

    Args:
      sites: the sites of a federation from ``tabular``.
      found: their ``statistics``.
      models: one for each site, in order.

    Returns:
      Arrays with a leading axis of sites: ``concordance``, the share of pairs in the right order
      (the C-index; the area under the curve for classes), the number of ``pairs`` and of those
      ``tied`` in the prediction, and the ``slope`` of the outcome on the prediction; NaN where a
      site has none. For classes also the
      ``rows``, ``cases`` and sum of ``predicted`` chances in cells between ``CUTS``; cells of fewer
      than 5 rows are reported as 0, so that nobody prints them, but the server can find them from
      other models.

    Example:
      >>> from fcojax_sites import flower
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> federation = flower.tabular("linear", on_subtree(l1(), named("kernel")), 1)
      >>> rows = {"x": np.array([[1.0], [2.0], [4.0]]), "present": np.ones((3, 1)),
      ...         "y": np.array([1.0, 3.0, 2.0])}
      >>> sites = flower.Sums(federation, flower.in_process(federation, {"Ghent": rows}))
      >>> model = {"kernel": np.array([1.0]), "bias": np.array(0.0)}
      >>> float(flower.judged(sites, flower.statistics(sites), [model])["concordance"][0])
      0.6666666666666666
    """
    flat = np.stack([ravel_pytree(model)[0] for model in models])
    given = found.scaling | {"models": flat}
    of = {
        name: each[range(len(flat)), range(len(flat))]
        for name, each in sites.ask("judged", given).items()
    }
    tied, pairs = of.pop("tied"), of.pop("comparable")
    share = (of.pop("concordant") + tied / 2) / np.maximum(pairs, 1)
    of["slope"] = np.where(of.pop("has_slope") > 0, of["slope"], np.nan)
    return of | {"concordance": np.where(pairs > 0, share, np.nan), "pairs": pairs, "tied": tied}


def _as_float(x: Array) -> Array:
    return x.astype(jnp.result_type(x, 0.0))  # outcomes take its dtype, and may be no integers


def _totals(loss: str, rows, given) -> PyTree:
    x = _as_float(rows["x"])
    present = rows["present"].astype(x.dtype)
    outcome = [rows[name].astype(present.dtype) for name in _outcomes(loss)]
    groups = {}
    if loss != "linear":
        zero = jnp.where(x == 0, present, 0)
        of = [[jnp.sum(one, axis=0), outcome[-1] @ one] for one in (zero, present - zero)]
        groups["groups"] = jnp.moveaxis(jnp.asarray(of), 2, 0)
    return groups | {
        "rows": jnp.asarray(present.shape[0], present.dtype),
        "left_out": jnp.sum(rows["left_out"]) if "left_out" in rows else jnp.zeros(()),
        "present": jnp.sum(present, axis=0),
        "sum": jnp.sum(present * x, axis=0),
        "outcome": jnp.stack([jnp.sum(one) for one in outcome]),
    }


def _squares(outcomes: tuple[str, ...], rows, given) -> PyTree:
    dtype = _as_float(rows["x"]).dtype
    off = [rows[name].astype(dtype) - given["outcome"][at] for at, name in enumerate(outcomes)]
    squares = jnp.where(rows["present"] > 0, (rows["x"] - given["mean"][None]) ** 2, 0)
    return {
        "squares": jnp.sum(squares, axis=0),
        "outcome": jnp.stack([jnp.sum(one**2) for one in off]),
    }


def _survival(rows, given) -> PyTree:
    grid, time = given["grid"], rows["time"][:, None]
    before = jnp.concatenate([jnp.full(1, -jnp.inf, grid.dtype), grid[:-1]])
    at_risk = time > before[None]
    events = at_risk & (time <= grid[None]) & (rows["event"] > 0)[:, None]
    # Those censored in a cell are at risk in it, as Kaplan and Meier count them.
    return {
        "at_risk": jnp.sum(at_risk, axis=0, dtype=jnp.int32),
        "events": jnp.sum(events, axis=0, dtype=jnp.int32),
    }


def _scaled(rows, given) -> PyTree:
    """Return the rows with scaled columns, missing values at the common mean."""
    x = jnp.where(rows["present"] > 0, (rows["x"] - given["mean"][None]) / given["size"][None], 0)
    return {**rows, "x": x}


def _unravel(loss: str, x: Array) -> Any:
    """Return the function from a vector to the parameters."""
    template: Params = {"kernel": jnp.zeros(x.shape[1], x.dtype)}
    return ravel_pytree(template if loss == "cox" else template | {"bias": jnp.zeros((), x.dtype)})[
        1
    ]


def _losses(loss: str, params: Params, rows: PyTree) -> Array:
    function = loss_of(loss)
    if isinstance(function, WholeBatchLoss):
        return function.function(params, rows, jnp.ones_like(rows["time"]))
    return function(params, rows)


def _design(loss: str, rows: PyTree) -> Array:
    """Return the columns in the order of the parameters as a vector: the bias is in front."""
    x = rows["x"]
    return x if loss == "cox" else jnp.concatenate([jnp.ones((x.shape[0], 1), x.dtype), x], axis=1)


def _derivatives(loss: str, z: Array, y: Array) -> tuple[Array, Array]:
    """Return the first two derivatives of each row's loss by its predictor."""
    y = y.astype(z.dtype)
    if loss == "linear":
        return z - y, jnp.ones_like(z)
    mean = jnp.exp(z) if loss == "poisson" else jax.nn.sigmoid(z)
    return mean - y, mean if loss == "poisson" else mean * (1 - mean)


def _moments(loss: str, rows, given) -> PyTree:
    """Return the sums of losses, gradients and Hessians at each model.

    Where they overflow, far from a solution, the loss is the largest finite number.
    """
    rows = _scaled(rows, given)
    unravel, design = _unravel(loss, rows["x"]), _design(loss, rows)

    def one(model):
        value = jnp.sum(_losses(loss, unravel(model), rows))
        gradient, hessian = _total_derivatives(loss, design, design @ model, rows)
        found = {"loss": value, "gradient": gradient, "hessian": hessian}
        over = ~tree.all_finite(found)
        zeros = {name: jnp.zeros_like(one) for name, one in found.items()}
        zeros["loss"] = jnp.full_like(value, jnp.finfo(value.dtype).max)
        return jax.tree.map(functools.partial(jnp.where, over), zeros, found)

    return jax.lax.map(one, given["models"])


def _total_derivatives(loss: str, design: Array, z: Array, rows: PyTree) -> tuple[Array, Array]:
    """Return gradient and Hessian of the sum of the losses."""
    if loss == "cox":
        return _risk_sets(design, z, rows)
    slope, curve = _derivatives(loss, z, rows["y"])
    return slope @ design, design.T @ (curve[:, None] * design)


def _risk_sets(x: Array, risk: Array, rows: PyTree) -> tuple[Array, Array]:
    r"""Return gradient and Hessian of the partial likelihood, in closed form.

    With the mean m_e of the rows at risk at an event e, and the hazard c_j that row j has been
    through, they are :math:`\sum_e (m_e - x_e)` and
    :math:`\sum_j c_j e^{r_j} x_j x_j^T - \sum_e m_e m_e^T`. Automatic second derivatives of the
    cumulative sums take a hundred times as long to compile.
    """
    order = jnp.argsort(-rows["time"])
    x, late_first = x[order], -rows["time"][order]
    event = (rows["event"][order] > 0).astype(x.dtype)
    # Rows with equal times share a risk set; a common factor of all weights cancels.
    last = jnp.searchsorted(late_first, late_first, side="right") - 1
    first = jnp.searchsorted(late_first, late_first, side="left")
    weight = jnp.exp(risk - jnp.max(risk))[order]
    total = jnp.cumsum(weight)[last]
    mean = jnp.cumsum(weight[:, None] * x, axis=0)[last] / total[:, None]
    # A row is at risk at events no later than its own time.
    hazard = jnp.cumsum((event / total)[::-1])[::-1][first]
    hessian = x.T @ ((hazard * weight)[:, None] * x) - mean.T @ (event[:, None] * mean)
    return event @ (mean - x), hessian


def _spread(loss: str, rows, given) -> PyTree:
    """Return the sum of outer products of the rows' gradients at a model, for the sandwich."""
    rows = _scaled(rows, given)
    design = _design(loss, rows)
    slope, _ = _derivatives(loss, design @ given["model"], rows["y"])
    return {"outer": design.T @ (slope[:, None] ** 2 * design)}


def _judged(loss: str, rows, given) -> PyTree:
    """Return pairs in the right order, calibration, and cells of predicted risk, for each model."""
    rows = _scaled(rows, given)
    unravel = _unravel(loss, rows["x"])
    if loss == "cox":
        time, event = rows["time"], rows["event"] > 0

        def is_worse(i):
            ends = (time[i] < time) | (time[i] == time) & ~event
            return ends & event[i]

    else:

        def is_worse(i):
            return rows["y"][i] > rows["y"]

    def one(model):
        params = unravel(model)
        risk = rows["x"] @ params["kernel"] + params.get("bias", 0.0)

        def pairs(i):
            pair, ahead = is_worse(i), risk[i] - risk
            counts = jnp.sum(pair & (ahead > 0)), jnp.sum(pair & (ahead == 0)), jnp.sum(pair)
            return jnp.stack(counts).astype(risk.dtype)

        right, tied, number = jnp.sum(jax.lax.map(pairs, jnp.arange(risk.size)), axis=0)
        found = {"concordant": right, "tied": tied, "comparable": number}
        return found | _slope(loss, rows, risk) | _cells(loss, rows, risk)

    return jax.lax.map(one, given["models"])


def _slope(loss: str, rows, risk: Array) -> dict[str, Array]:
    """Return the slope of the outcome on the predictor: 1 if calibrated, less if it overfits.

    There is none with one class, a predictor that separates, or one that is the same for all rows.
    """
    rows = {**rows, "x": risk[:, None]}
    design = _design(loss, rows)

    def step(_, now):
        w, _ = now
        gradient, hessian = _total_derivatives(loss, design, design @ w, rows)
        change = jnp.linalg.solve(hessian, gradient)
        return w - change, change

    start = jnp.zeros(design.shape[1], risk.dtype)
    if loss == "poisson":  # from 0 the first step goes to the mean count, and others back by 1
        start = start.at[0].set(jnp.log(jnp.mean(rows["y"].astype(risk.dtype))))
    w, change = jax.lax.fori_loop(0, _SLOPE_STEPS, step, (start, start))
    ends = jnp.all(jnp.abs(change) <= 1e-3 * (1 + jnp.abs(w))) & (jnp.ptp(risk) > 0)
    return {"slope": jnp.where(ends, w[-1], 0), "has_slope": ends.astype(risk.dtype)}


def _cells(loss: str, rows, risk: Array) -> PyTree:
    """Return the number of rows, of cases and the mean prediction in cells of predicted risk."""
    if loss != "logistic":
        return {}
    chance = jax.nn.sigmoid(risk)
    cell = jnp.sum(chance[:, None] > jnp.asarray(CUTS, risk.dtype)[None], axis=1)
    inside = (cell[:, None] == jnp.arange(len(CUTS) + 1)[None]).astype(risk.dtype)
    count = jnp.sum(inside, axis=0)
    shown = jnp.where(count < _LEAST_COUNT, 0, 1)
    return {
        "rows": shown * count,
        "cases": shown * (rows["y"].astype(risk.dtype) @ inside),
        "predicted": shown * (chance @ inside),
    }


def _outside(found: PyTree, limits: dict[str, tuple[Any, Any]]) -> str:
    """Return a sentence about the first sum outside its limits, up to rounding; empty if none is.

    Args:
      found: the sums of a site.
      limits: the least and the largest value, by the name of the sum.
    """
    for name, (low, high) in limits.items():
        sums = np.asarray(found[name])
        slack = 1e-6 * np.maximum(1, np.abs(sums))
        is_outside = (sums < low - slack) | (sums > high + slack)
        if np.any(is_outside):
            least, most = (np.broadcast_to(end, sums.shape)[is_outside][0] for end in (low, high))
            return f"a sum, {name}, is {sums[is_outside][0]:g} and not {least:g} to {most:g}."
    return ""


def _wrong_totals(loss: str, found: PyTree, given: PyTree, size: int) -> str:
    found = found | dict(zip(("events", "time"), found["outcome"][::-1], strict=False))
    low = -np.inf if loss == "linear" else 0
    limits = {
        "rows": (size, size),
        "left_out": (0, np.inf),
        "present": (0, size),
        "events": (low, size if loss in ("logistic", "cox") else np.inf),
    }
    if loss == "cox":
        limits["time"] = 0, np.inf
    if loss != "linear":
        found["rows with 0 and others"] = found["groups"][:, :, 0]
        limits["rows with 0 and others"] = 0, found["present"][:, None]
        limits["groups"] = 0, np.inf
    return _outside(found, limits)


def _wrong_squares(found: PyTree, given: PyTree, size: int) -> str:
    return _outside(found, dict.fromkeys(found, (0, np.inf)))


def _wrong_survival(found: PyTree, given: PyTree, size: int) -> str:
    before = np.append(size, found["at_risk"][:-1])
    return _outside(found, {"at_risk": (0, before), "events": (0, found["at_risk"])})


def _wrong_moments(loss: str, found: PyTree, given: PyTree, size: int) -> str:
    low = -np.inf if loss == "poisson" else 0
    return _outside(found, {"loss": (low, np.inf)}) or _indefinite(found["hessian"], size)


def _wrong_spread(found: PyTree, given: PyTree, size: int) -> str:
    return _indefinite(found["outer"][None], size)


def _indefinite(matrices: np.ndarray, size: int) -> str:
    """Return a sentence if sums over rows of semidefinite matrices cannot be such sums."""
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    largest = np.maximum(1, np.max(np.abs(matrices), axis=(1, 2)))[:, None, None]
    slack = float(np.finfo(matrices.dtype).eps) ** 0.5 * size * largest
    root = np.sqrt(np.maximum(diagonal, 0))
    bound = root[:, :, None] * root[:, None, :]
    is_bad = (diagonal < -slack[:, 0]) | np.any(np.abs(matrices) > bound + slack, axis=2)
    is_bad |= np.any(np.abs(matrices - np.swapaxes(matrices, 1, 2)) > slack, axis=2)
    return "its second derivatives are not those of a convex loss." if np.any(is_bad) else ""


def _wrong_judged(found: PyTree, given: PyTree, size: int) -> str:
    pairs = found["comparable"]
    limits = {
        "comparable": (0, size * (size - 1) / 2),
        "concordant": (0, pairs),
        "tied": (0, pairs - found["concordant"]),
        "has_slope": (0, 1),
    }
    if "rows" in found:
        limits |= {"rows": (0, size)} | dict.fromkeys(("cases", "predicted"), (0, found["rows"]))
    return _outside(found, limits)
