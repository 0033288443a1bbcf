"""The clients, the loss, the penalty and the split of a config."""

import contextlib
import csv
import glob
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcojax import datasets, problems
from fcojax.datasets import Pooled
from fcojax.problems import ClientData, Problem, SparseRows, WholeBatchLoss, partition
from fcojax.transforms import (
    Penalty,
    elastic_net,
    fused_lasso,
    group_l2,
    l1,
    named,
    on_subtree,
    sparse_group,
)
from fcojax_sites import selection
from fcojax_sites.cox import cox
from fcojax_sites.studies.select.files import (
    Config,
    Description,
    Table,
    names_in,
    numbered,
    read,
)
from fcojax_sites.studies.select.penalties import on_entries, slope, trend_filter


class Loss(NamedTuple):
    """A loss of the study.

    Attributes:
      problem: ``clients -> Problem``.
      target: the kind of its target: a number, a count or a class.
    """

    problem: Callable[[ClientData], Problem]
    target: str


LOSSES = {
    "linear": Loss(problems.linear, "number"),
    "logistic": Loss(problems.logistic, "class"),
    "poisson": Loss(problems.poisson, "count"),
    "huber": Loss(problems.huber_regression, "number"),
    "median": Loss(problems.quantile_regression, "number"),
    "squared_hinge": Loss(problems.squared_hinge, "class"),
}


def _cox(data: ClientData) -> Problem:
    """Return Cox regression with the parameters of the other losses; its bias has no effect."""
    inner = cox(data)
    assert isinstance(inner.loss, WholeBatchLoss)
    likelihood = inner.loss.function

    def loss(params, rows, weights):
        return likelihood(params["kernel"], rows, weights)

    def init(key):
        kernel = inner.init(key)
        return {"kernel": kernel, "bias": kernel[0]}

    return inner._replace(loss=WholeBatchLoss(loss), init=init)


LOSSES["cox"] = Loss(_cox, "survival time")
SPLITS: dict[str, Callable[[Config], Any]] = {
    "site": lambda config: selection.by_client(),
    "sites": lambda config: selection.by_client(config.num_folds),
    "examples": lambda config: selection.by_example(config.num_folds),
    "bic": lambda config: selection.bic(gaussian=config.loss == "linear"),
    "ebic": lambda config: selection.ebic(gaussian=config.loss == "linear"),
    "aic": lambda config: selection.aic(gaussian=config.loss == "linear"),
    "nonzeros": lambda config: selection.nonzeros(config.nonzeros),
}


class Scaling(NamedTuple):
    """The scaling of the features: models take ``(x - mean) / size``.

    Attributes:
      mean: the mean of each feature; zero for sparse features.
      size: the standard deviation or root mean square; 1 in place of 0.
      what: the kind of ``size``, in words.
    """

    mean: np.ndarray
    size: np.ndarray
    what: str


class Task(NamedTuple):
    """The problem in a file.

    Attributes:
      problem: the clients and the loss.
      names: the names of the features.
      scaling: the scaling of the features.
      filled: the number of missing values of each feature, replaced by its mean.
      unlabelled: the number of rows without a target, which are left out.
    """

    problem: Problem
    names: list[str]
    scaling: Scaling
    filled: np.ndarray
    unlabelled: int


def task(config: Config) -> Task:
    """Return the task, with missing values filled."""
    table = loaded(config)
    loss = LOSSES[config.loss]
    present = labelled(table, config)
    x = table.x[present]
    sparse = isinstance(x, SparseRows)
    filled = np.zeros(len(table.names), int) if sparse else np.isnan(x).sum(axis=0)
    if empty := [table.names[column] for column in np.flatnonzero(filled == x.shape[0])]:
        raise ValueError(
            f"{empty[0]} has no value in any row with a target; pass --config.drop="
            f"{','.join(empty)} to leave it out."
        )
    x, scaling = _standardised(x, table.names)
    fields = outcome(table, present, config)
    y = fields["time"] if config.loss == "cox" else _checked_target(fields["y"], config)
    if config.loss != "cox":
        fields = {"y": y}
    site = _assign_sites(y, config) if table.site is None else table.site[present]
    if table.site is not None:
        _require_cases(table.site, site, y, config)
    data = datasets.by_client(Pooled({"x": x, **fields}, site), weights="examples")
    return Task(loss.problem(data), table.names, scaling, filled, int((~present).sum()))


def loaded(config: Config) -> Table:
    """Return the table in the file or folder of a config, or a drawn one."""
    return read(config) if config.data_dir else _synthetic(config)


def labelled(table: Table, config: Config) -> np.ndarray:
    """Return which rows have an outcome; raise ``ValueError`` if none has."""
    present = ~np.isnan(table.y)
    if table.event is not None:
        present &= ~np.isnan(table.event)
    if not present.any():
        if config.loss == "cox":
            raise ValueError(
                f"{config.time} or {config.event} is missing in all rows; pass other columns."
            )
        raise ValueError(f"{config.target} is missing in all rows; pass another --config.target.")
    return present


def outcome(table: Table, present: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """Return the fields that a loss predicts, with the classes that a threshold makes."""
    if config.loss == "cox":
        return _survival(table, present, config)
    y = table.y[present]
    if config.positive_above == np.inf:
        return {"y": y}
    if (target := LOSSES[config.loss].target) != "class":
        raise ValueError(
            f"positive_above is {config.positive_above:g}, which makes two classes of the "
            f"target, but that of loss {config.loss} is a {target}; pass a loss of "
            "classes, or no positive_above."
        )
    return {"y": (y > config.positive_above).astype(np.int32)}


def _survival(table: Table, present: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """Return times and events; raise ``ValueError`` unless times are at least 0, events 0 or 1."""
    assert table.event is not None
    time, event = table.y[present], table.event[present]
    if not (time >= 0).all():
        raise ValueError(f"{config.time} is {time.min():g} in a row; pass times of at least 0.")
    if not np.isin(event, (0, 1)).all():
        wrong = event[~np.isin(event, (0, 1))][0]
        raise ValueError(f"{config.event} is {wrong:g} in a row; write 1 for an event, 0 for none.")
    if not event.any():
        raise ValueError(f"{config.event} is 0 in every row; pass a file with events.")
    return {"time": time, "event": event.astype(np.int32)}


def _checked_target(y: np.ndarray, config: Config) -> np.ndarray:
    """Return the target, with classes as 0 and 1; raise ``ValueError`` if it cannot be fitted.

    Two classes may be coded as any two integers, of which the larger is class 1.
    """
    with np.errstate(over="ignore"):
        energy = np.sum(np.square(y, dtype=np.float64))
    if not np.isfinite(energy):
        raise ValueError(
            f"{config.target} has values up to {np.abs(y).max():g}, whose squares are not finite; "
            "scale it."
        )
    values = np.unique(y)
    if len(values) < 2:
        raise ValueError(
            f"{config.target} is {values[0]:g} in every row; pass another --config.target, or "
            "another --config.positive_above."
        )
    if LOSSES[config.loss].target != "class":
        return y
    if len(values) > 2 or (values % 1).any():
        raise ValueError(
            f"the target of loss {config.loss} is one of two classes, but {config.target} has "
            f"{len(values)} values, such as {values[len(values) // 2]:g}; pass "
            "--config.positive_above=NUMBER to make two classes of them, or --config.loss=linear."
        )
    return (y == values[1]).astype(np.int32)


def _require_cases(sites: np.ndarray, site: np.ndarray, y: np.ndarray, config: Config) -> None:
    """Raise ``ValueError`` for a site without targets, or if only one site has some class."""
    if absent := sorted({*sites.tolist()} - {*site.tolist()}):
        raise ValueError(
            f"no row of {absent[0]} has a value of {config.target}; remove the rows of that site."
        )
    if LOSSES[config.loss].target == "class" and config.by in ("site", "sites"):
        for label in (0, 1):
            having = np.unique(site[y == label])
            if having.size == 1:
                raise ValueError(
                    f"every row with the class {label} of {config.target} is at {having[0]}, so "
                    "the other sites have only one class; pass --config.by=examples."
                )


def _assign_sites(labels: np.ndarray, config: Config) -> np.ndarray:
    """Divide rows without sites among clients, each class in Dirichlet shares."""
    number, concentration = config.num_clients, config.concentration
    if (target := LOSSES[config.loss].target) != "class":
        of_classes = [name for name, loss in LOSSES.items() if loss.target == "class"]
        raise ValueError(
            f"client is empty, which divides rows by their class, but the target of loss "
            f"{config.loss} is a {target}; name the sites, or pass loss {' or '.join(of_classes)}."
        )
    if not 1 < number <= labels.size:
        raise ValueError(
            f"num_clients is {number}; pass a number from 2 to {labels.size}, the number of rows."
        )
    try:
        shares = partition.dirichlet(labels, number, concentration, seed=config.data_seed)
    except ValueError as error:
        raise ValueError(
            f"no division at concentration {concentration} gives each of {number} clients a row; "
            "raise concentration or lower num_clients."
        ) from error
    names = [f"client {index + 1:0{len(str(number))}}" for index in range(number)]
    site = np.empty(labels.size, f"U{len(names[-1])}")
    site[shares.order] = np.repeat(names, shares.sizes)
    return site


def penalty(config: Config, names: list[str]) -> Penalty:
    """Return the penalty of the kernel: an elastic net, l1, or groups; the bias is free."""
    inner = l1() if config.l1_fraction == 1 else elastic_net(config.l1_fraction)
    if config.groups:
        if config.l1_fraction != 1:
            raise ValueError(
                f"l1_fraction is {config.l1_fraction}, but an elastic net has no groups; "
                "pass --config.group_fraction, the share of the groups beside l1."
            )
        named_groups = groups(config.groups)
        labels = selection.group_labels(names, named_groups)
        inner = _of_groups(config, labels, len(named_groups))
    elif (config.group_penalty, config.group_fraction) != ("norm", 1):
        raise ValueError(
            f"groups is empty, where group_penalty {config.group_penalty} and group_fraction "
            f"{config.group_fraction:g} have no effect; pass --config.groups."
        )
    return on_subtree(inner, named("kernel"))


def _of_groups(config: Config, labels: np.ndarray, number: int) -> Penalty:
    """Return the penalty of groups, given as labels; columns without a group have the l1 norm."""
    kind, fraction = config.group_penalty, config.group_fraction
    if kind == "norm":
        return (
            group_l2(labels=[labels])
            if fraction == 1
            else sparse_group(1 - fraction, labels=[labels])
        )
    if kind != "norm" and config.by in ("aic", "bic", "ebic"):
        raise ValueError(
            f"by is {config.by}, which counts nonzero coefficients, but {kind} ties them to one "
            "another; pass --config.by=site, sites or examples."
        )
    if kind == "fused" and fraction == 1:
        raise ValueError(
            "group_fraction is 1, so fused columns have no l1 norm and no first strength; "
            "pass less."
        )
    if kind == "trend" and fraction < 1:
        raise ValueError(
            f"group_fraction is {fraction}, but the prox of l1 plus trend filtering is not "
            "one prox after the other; pass 1, or --config.group_penalty=fused."
        )
    parts: list[tuple[Penalty, np.ndarray]] = []
    for label in range(number):
        columns = np.flatnonzero(labels == label)
        if kind == "slope":
            ranks = np.arange(columns.size, 0, -1) / columns.size
            each = slope(1 - fraction + fraction * ranks)
        elif kind == "fused":
            each = fused_lasso(1 - fraction)
        elif columns.size < 3:
            raise ValueError(
                f"a group has {columns.size} columns, whose trend has no kink; pass 3 or more."
            )
        else:
            each = trend_filter()
        parts.append((each, columns))
    if (alone := np.flatnonzero(labels >= number)).size:
        parts.append((l1(), alone))
    return on_entries(*parts)


def groups(text: str) -> dict[str, list[str]]:
    """Return the patterns of each group, from a CSV file of columns and groups, or from text.

    Args:
      text: the path of a file with a line ``NAME,GROUP`` for each column, after a header
        ``column,group`` or without one; or patterns as in ``lab=lab_*|crp,vitals=bp_?``.
    """
    found: dict[str, list[str]] = {}
    if "=" in text and not os.path.exists(text):
        for part in unicodedata.normalize("NFC", text).split(","):
            name, _, patterns = part.partition("=")
            if not name.strip() or not patterns.strip():
                raise ValueError(
                    f"groups has {part!r}; write NAME=PATTERN|PATTERN, as in lab=lab_*|crp."
                )
            found.setdefault(name.strip(), []).extend(one.strip() for one in patterns.split("|"))
        return found
    lines = None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        content = Path(text).read_text("utf-8-sig")
        lines = unicodedata.normalize("NFC", content).splitlines()
    if lines is None:  # raised here, because the command would print an OSError as the cause
        what = "cannot be read as text" if os.path.exists(text) else "is not a file"
        raise ValueError(
            f"groups is {text!r}, which {what}; pass a CSV file of columns and groups, or "
            "patterns, as in lab=lab_*|crp,vitals=bp_?."
        )
    try:
        cells = list(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise ValueError(f"{text}: {error}; is there an open quote?") from None
    if not cells or any("\0" in line for line in lines):
        what = "has NUL bytes" if cells else "is empty"
        raise ValueError(f"{text} {what}; write a line column,group for each column.")
    for number, line in enumerate(cells, 1):
        if len(line) != 2:
            raise ValueError(f"{text}, line {number}: has {len(line)} cells; write column,group.")
        column, group = (cell.strip() for cell in line)
        if (number, column.lower(), group.lower()) != (1, "column", "group"):
            found.setdefault(group, []).append(glob.escape(column))
    if not found:
        raise ValueError(f"{text} has a header alone; write a line column,group for each column.")
    return found


def split(config: Config) -> Any:
    """Return the folds or the criterion that chooses the strength."""
    return SPLITS["nonzeros" if config.nonzeros else config.by](config)


_CONSTANT = 1e-12  # a deviation below this share of the largest entry is rounding


def _standardised(
    x: np.ndarray | SparseRows, names: list[str]
) -> tuple[np.ndarray | SparseRows, Scaling]:
    """Return features with mean 0 and variance 1, missing values filled in, and their scaling.

    Sparse features are divided by their root mean squares only, so that zeros stay zero.
    """
    if isinstance(x, SparseRows):
        value = np.asarray(x.value, np.float64)
        sums = np.bincount(np.ravel(x.index), np.ravel(value**2), minlength=x.num_features)
        spread, what = np.sqrt(sums / x.shape[0]), "root mean square"
        mean = 0 * spread
    else:
        x = x.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread, what = np.nanmean(x, axis=0), np.nanstd(x, axis=0), "deviation"
            # The mean of equal numbers has a rounding error: 1e-17 if all rows are 0.1.
            tiny = spread <= _CONSTANT * np.nanmax(np.abs(x), axis=0)
            lost = np.flatnonzero(tiny & (np.nanmin(x, axis=0) < np.nanmax(x, axis=0)))
        if lost.size:
            name = names[lost[0]]
            raise ValueError(
                f"{name} has numbers that differ by less than {_CONSTANT} of their size; subtract "
                f"the smallest, or pass --config.drop={name}."
            )
        spread[tiny] = 0
    if (wrong := np.flatnonzero(~np.isfinite(spread))).size:
        raise ValueError(
            f"{names[wrong[0]]} has values that are not finite, or whose squares are not; scale it."
        )
    if not spread.any():
        raise ValueError("every feature has one value in all rows; pass features that vary.")
    size = np.where(spread > 0, spread, 1)
    if isinstance(x, SparseRows):
        scaled = SparseRows(x.index, value / size[x.index], x.num_features)
    else:
        scaled = np.where(spread > 0, np.nan_to_num((x - mean) / size), 0.0)
    return scaled, Scaling(mean, size, what)


def _synthetic(config: Config) -> Table:
    """Return synthetic sites of different sizes and means; every fifth feature matters.

    With ``features`` in the config it is a table with these columns, to rehearse a study before
    there are data.
    """
    of_files = ("names", "missing", "categories", "drop")
    given = [key for key in of_files if "".join(getattr(config, key, ""))]
    if given and not config.features:
        raise ValueError(
            f"{given[0]} applies to a file, and there is none; pass --config.data_dir=FILE, or "
            "--config.features=NAME,NAME to draw a table with these columns."
        )
    rng = np.random.default_rng(config.data_seed)
    sizes = np.asarray(config.sizes)
    site = np.repeat([f"site {index + 1}" for index in range(sizes.size)], sizes)
    table = Description.of(config)
    columns, levels = names_in(config.features) or numbered(config.dim), table.levels()
    names = table.feature_names(columns)
    shift = np.repeat(0.5 * rng.standard_normal((sizes.size, len(names))), sizes, axis=0)
    x = rng.standard_normal(shift.shape) + shift
    for column, words in levels.items():  # a level has its indicator, the reference none
        at = [names.index(f"{column}: {level}") for level in words[1:]]
        x[:, at] = np.eye(len(words))[rng.integers(len(words), size=len(x))][:, 1:]
    truth = np.where(np.arange(len(names)) % 5 == 0, rng.choice([-1.0, 1.0], len(names)), 0.0)
    z, target, event = x @ truth, LOSSES[config.loss].target, None
    if target == "class":
        y = (rng.logistic(size=z.size) < z).astype(float)
    elif target == "count":
        y = rng.poisson(np.exp(np.clip(z / 3, None, 4))).astype(float)
    elif target == "survival time":
        y, event = rng.exponential(1000 * np.exp(-z)), (rng.random(z.size) < 0.5).astype(float)
    else:
        y = z + rng.standard_normal(z.size)
    # A unit is about a deviation, so that effects per unit are of the size that they will have.
    return Table(x * np.asarray(table.per(names)), y, site, names, event)
