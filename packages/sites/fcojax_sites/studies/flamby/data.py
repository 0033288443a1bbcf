"""FLamby's two tabular benchmarks as their repository prepares and splits them.

du Terrail et al., "FLamby: datasets and benchmarks for cross-silo federated learning in realistic
healthcare settings", NeurIPS 2022.
"""

import csv
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fcojax import from_clients
from fcojax.problems import ClientData, Problem, logistic
from fcojax.transforms import Penalty, elastic_net, group_l2, l1, named, on_subtree
from fcojax_sites.cox import cox

_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_LEFT_OUT = (10, 11, 12)  # slope, ca, thal
_CATEGORIES = (2, 6)  # cp, restecg
_NUMERIC = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
_FACTORS = (
    *("ethnicity", "race", "icd_10_code", "morphology", "primary_diagnosis", "prior_malignancy"),
    *("ajcc_pathologic_m", "ajcc_pathologic_n", "ajcc_pathologic_stage", "ajcc_pathologic_t"),
    *("ajcc_staging_system_edition", "synchronous_malignancy", "treatment_or_therapy"),
    "tumor_stage",
)
_SHARE, _SEED = 0.66, 43  # share of the rows that are train rows, and the seed of the split


class Silos(NamedTuple):
    """One benchmark: the train and the test rows of each silo.

    Attributes:
      train: the train rows of each silo, as a dictionary of arrays.
      test: the test rows of each silo, in the same form.
      features: names of the columns of ``x``.
      build: ``ClientData -> Problem``.
    """

    train: list[dict[str, np.ndarray]]
    test: list[dict[str, np.ndarray]]
    features: list[str]
    build: Callable[[ClientData], Problem]

    def problem(self, *silos: int) -> Problem:
        """Return the problem with these silos as clients, or all silos if none is given."""
        return self.build(from_clients([self.train[i] for i in silos or range(len(self.train))]))

    def pooled(self) -> Problem:
        """Return the problem in which one client has all train rows."""
        together = {k: np.concatenate([silo[k] for silo in self.train]) for k in self.train[0]}
        return self.build(from_clients([together]))


def fed_tcga_brca(folder: pathlib.Path) -> Silos:
    """Return survival times of patients in six regions, from ``brca.csv`` and the split beside it.

    Columns are divided by their standard deviation over all train rows, which regions can compute
    from sums. A column that is constant over these rows is left out.
    """
    rows = _csv(_find(folder, "brca.csv"))
    split = {row["pid"]: row["fold2"] for row in _csv(_find(folder, "train_test_split.csv"))}
    names = [name for name in rows[0] if name not in ("pid", "E", "T")]
    # Eight patients are in no fold.
    rows = [row for row in rows if row["pid"] in split]
    x = np.array([[float(row[name]) for name in names] for row in rows])
    fold = np.array([split[row["pid"]] for row in rows])
    spread = x[np.char.startswith(fold, "train")].std(axis=0)
    varies = spread > 1e-12
    fields = {
        "x": x[:, varies] / spread[varies],
        "time": np.array([float(row["T"]) for row in rows]),
        "event": np.array([int(float(row["E"])) for row in rows]),
    }
    train, test = (
        [{k: v[fold == f"{part}_{i}"] for k, v in fields.items()} for i in range(6)]
        for part in ("train", "test")
    )
    return Silos(train, test, [n for n, kept in zip(names, varies, strict=True) if kept], cox)


def fed_heart_disease(folder: pathlib.Path) -> Silos:
    """Return heart disease in four hospitals, from UCI's ``processed.*.data``.

    The columns of each hospital are centred and scaled by its own train rows.
    """
    tables = [_uci(_find(folder, f"processed.{name}.data")) for name in _HOSPITALS]
    kept = [np.delete(table, _LEFT_OUT, axis=1) for table in tables]
    kept = [table[~np.isnan(table).any(axis=1)] for table in kept]
    levels = {c: np.unique(np.concatenate([table[:, c] for table in kept])) for c in _CATEGORIES}
    numeric = [c for c in range(kept[0].shape[1] - 1) if c not in _CATEGORIES]
    train, test = [], []
    for table in kept:
        # The first level of a category is the reference.
        columns = [table[:, [c]] == levels[c][1:] for c in _CATEGORIES]
        x = np.concatenate([table[:, numeric], *columns], axis=1).astype(float)
        y = (table[:, -1] > 0).astype(np.int64)
        mine, others = _split(y)
        centre, spread = x[mine].mean(axis=0), x[mine].std(axis=0, ddof=1) + 1e-9
        x = (x - centre) / spread
        train.append({"x": x[mine], "y": y[mine]})
        test.append({"x": x[others], "y": y[others]})
    features: list[str] = [*_NUMERIC]
    for column, name in zip(_CATEGORIES, ("cp", "restecg"), strict=True):
        features += [f"{name}={level:g}" for level in levels[column][1:]]
    return Silos(train, test, features, logistic)


DATASETS: Mapping[str, Callable[[pathlib.Path], Silos]] = {
    "fed_tcga_brca": fed_tcga_brca,
    "fed_heart_disease": fed_heart_disease,
}


def penalties(silos: Silos) -> dict[str, Penalty]:
    """Return the penalties of the exact fits by name; dummies of one factor are one group."""
    factors = [_factor(name) for name in silos.features]
    order = list(dict.fromkeys(factors))
    labels = np.array([order.index(factor) for factor in factors])
    on_kernel = silos.build is logistic  # its model also has a bias
    found = {
        "lasso": l1(),
        "elastic net": elastic_net(0.5),
        "group lasso": group_l2(labels=[labels] if on_kernel else labels),
    }
    if on_kernel:
        found = {name: on_subtree(penalty, named("kernel")) for name, penalty in found.items()}
    return found


def _factor(column: str) -> str:
    """Return the factor of a dummy column: the part of its name before the level."""
    if "=" in column:
        return column.split("=")[0]
    return next((factor for factor in _FACTORS if column.startswith(f"{factor}_")), column)


def _split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ValueError(
            "fed_heart_disease is split by scikit-learn: pip install scikit-learn."
        ) from error
    train, test = train_test_split(
        np.arange(len(y)),
        train_size=_SHARE,
        test_size=round(1 - _SHARE, 2),
        random_state=_SEED,
        shuffle=True,
        # As in FLamby, a hospital with at most two rows of a class is split without regard to
        # classes.
        stratify=y if min(np.bincount(y, minlength=2)) > 2 else None,
    )
    return np.asarray(train), np.asarray(test)


def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
    found = sorted(folder.rglob(name))
    if not found:
        raise ValueError(
            f"data_dir is {str(folder)!r}, which has no {name}; pass a checkout of "
            "github.com/owkin/FLamby, with the data that its scripts download."
        )
    return found[0]


def _csv(path: pathlib.Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _uci(path: pathlib.Path) -> np.ndarray:
    return np.genfromtxt(path, delimiter=",", missing_values="?", filling_values=np.nan)
