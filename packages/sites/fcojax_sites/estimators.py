"""Estimators for scikit-learn that call ``select``; every row belongs to a site.

They need scikit-learn, ``pip install 'fcojax-sites[estimators]'``, and an explicit import:
``from fcojax_sites.estimators import SparseRegressor``.
"""

import contextlib
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fcojax import ClientData, problems
from fcojax.datasets import Pooled, by_client
from fcojax.problems import Problem
from fcojax.transforms import Penalty, l1, named, on_subtree
from fcojax_sites import selection

# Numbers that a pass reads in less time than the other work of a round takes.
_FEW = 1 << 13


def _padded(data: ClientData) -> ClientData:
    """Return the same clients in arrays of one of a few lengths.

    Folds of a table have almost equally many rows; at equal lengths they share a program. The added
    rows belong to no client, so they change no result.
    """
    num_rows, num_features = data.examples["x"].shape

    def room(size):
        # Twice the rows take no time if there are few numbers; else four lengths from n to 2 n.
        doubled = 1 << (size - 1).bit_length()
        step = doubled if doubled * num_features <= _FEW else max(doubled >> 3, 1)
        return -(-size // step) * step

    num_added = room(num_rows) - num_rows
    bounds = sorted(set(map(room, data.size_bounds)))

    def longer(leaf):
        rows = np.asarray(leaf)
        return jax.device_put(np.pad(rows, ((0, num_added),) + ((0, 0),) * (rows.ndim - 1)))

    return dataclasses.replace(
        data,
        examples=jax.tree.map(longer, data.examples),
        min_size=1,
        max_size=bounds[-1],
        size_bounds=tuple(bounds),
    )


_lock = threading.Lock()
_fits: list[dict[str, Any]] = []  # fits under way; the first has the options to restore


@contextlib.contextmanager
def _kept_programs() -> Iterator[None]:
    """Keep compiled programs on disk, where the launcher keeps them, until the fit ends.

    Without ``jax_enable_compilation_cache`` nothing is kept, and a folder that the user has set
    stays. Afterwards the options are those before.
    """
    with _lock:
        _fits.append({} if _fits else _switched_on())
    try:
        yield
    finally:
        with _lock:
            before = _fits.pop()
            for name, value in before.items():
                jax.config.update(name, value)
            if before:
                compilation_cache.reset_cache()  # JAX would go on using the folder


def _switched_on() -> dict[str, Any]:
    """Set the folder of compiled programs, if there is none; return the options as they were."""
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    folder, before = folder / "fcojax" / "jax", jax.config.values
    if not before["jax_enable_compilation_cache"] or before["jax_compilation_cache_dir"]:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}  # such as in a container whose disk is read-only
    # A fit compiles two programs that take seconds and a dozen that take 30 ms each.
    options = {
        "jax_compilation_cache_dir": os.fspath(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    for name, value in options.items():
        jax.config.update(name, value)
    return {name: before[name] for name in options}


class _Sparse(BaseEstimator):
    """The common part of both estimators."""

    def __init__(
        self,
        penalty: Penalty | None = None,
        *,
        by: Any = None,
        one_standard_error: bool = True,
        shrinkage: float = 0.0,
        strengths: Any = 50,
        least: float = 1e-2,
        tolerance: float = 1e-5,
        max_rounds: int = 10_000,
        random_state: Any = None,
    ):
        self.penalty = penalty
        self.by = by
        self.one_standard_error = one_standard_error
        self.shrinkage = shrinkage
        self.strengths = strengths
        self.least = least
        self.tolerance = tolerance
        self.max_rounds = max_rounds
        self.random_state = random_state

    @_kept_programs()
    def _select(self, x, y, groups, problem: Callable[..., Problem]) -> Self:
        groups = np.zeros(len(y), int) if groups is None else np.asarray(groups)
        data = by_client(Pooled({"x": x, "y": y}, groups), weights="examples")
        by = self.by
        if by is None and data.num_clients == 1:
            by = selection.by_example(min(5, len(y)))
        seed = check_random_state(self.random_state).randint(2**31)
        penalty = on_subtree(l1(), named("kernel")) if self.penalty is None else self.penalty
        self.selection_ = selection.select(
            problem(data)._replace(train=_padded(data)),
            penalty,
            by=by,
            one_standard_error=self.one_standard_error,
            refit=self.shrinkage != 1,
            strengths=self.strengths,
            least=self.least,
            key=jax.random.key(seed),
            tolerance=self.tolerance,
            max_rounds=self.max_rounds,
        )
        found = self.selection_
        model: Any = found.model if self.shrinkage == 1 else found.relaxed(self.shrinkage)
        self.coef_ = np.asarray(model["kernel"], float).T
        self.intercept_ = np.asarray(model["bias"], float)
        return self

    def _scores(self, X):
        check_is_fitted(self)
        x: Any = validate_data(self, X, reset=False, dtype=float)
        # Row by row, so that a row's score does not depend on the other rows.
        return np.sum(x[:, None, :] * np.atleast_2d(self.coef_), axis=2) + self.intercept_


class SparseRegressor(RegressorMixin, _Sparse):
    """Sparse least squares over sites, with an unpenalised bias and a strength from ``select``.

    Args:
      penalty: psi on ``kernel`` and ``bias``; ``None`` for l1 on the kernel.
      by: folds, a criterion or a number of nonzeros, as for ``select``; ``None`` leaves one site
        out, or a fifth of the rows if there is one site.
      one_standard_error: see ``select``.
      shrinkage: phi of the relaxed lasso, ``phi * model + (1 - phi) * refit``: 0 predicts with the
        unpenalised model on the chosen support, 1 with the penalised model.
      strengths: see ``select``.
      least: see ``select``.
      tolerance: see ``select``.
      max_rounds: see ``select``.
      random_state: seed of the folds, as in scikit-learn.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites import selection
      >>> from fcojax_sites.estimators import SparseRegressor
      >>> x = np.random.default_rng(0).normal(size=(60, 4))
      >>> sites = np.repeat(["a", "b", "c"], 20)
      >>> model = SparseRegressor(by=selection.nonzeros(1)).fit(x, 2 * x[:, 0] + 1, groups=sites)
      >>> model.coef_.round(2).tolist(), round(float(model.intercept_), 2)
      ([2.0, 0.0, 0.0, 0.0], 1.0)
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Choose a strength and fit the model; attributes end in an underscore.

        Args:
          X: [rows, features].
          y: [rows], the targets.
          groups: [rows], the site of each; ``None`` for one site.
        """
        x, y = validate_data(self, X, y, dtype=[np.float32, np.float64], y_numeric=True)
        return self._select(x, np.asarray(y, np.asarray(x).dtype), groups, problems.linear)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets.

        Args:
          X: [rows, features].
        """
        return self._scores(X)[:, 0]


class SparseClassifier(ClassifierMixin, _Sparse):
    """Sparse logistic or softmax regression over sites, with a strength from ``select``.

    The arguments are those of ``SparseRegressor``.

    Example:
      >>> import numpy as np
      >>> from fcojax_sites import selection
      >>> from fcojax_sites.estimators import SparseClassifier
      >>> x = np.random.default_rng(0).normal(size=(80, 4))
      >>> y = np.where(x[:, 1] + 0.5 * np.sin(20 * x[:, 0]) > 0, "ill", "well")
      >>> model = SparseClassifier(by=selection.nonzeros(1)).fit(x, y, groups=np.arange(80) % 4)
      >>> (model.coef_ != 0).tolist(), model.predict(x[:2]).shape
      ([False, True, False, False], (2,))
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Choose a strength and fit the model; attributes end in an underscore.

        Args:
          X: [rows, features].
          y: [rows], the classes, numbers or strings.
          groups: [rows], the site of each; ``None`` for one site.
        """
        x, y = validate_data(self, X, y, dtype=[np.float32, np.float64])
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(
                f"y has one class, {self.classes_[0]!r}; pass examples of two or more classes."
            )

        def problem(data):
            if self.classes_.size == 2:
                return problems.logistic(data)
            return problems.softmax(data, num_classes=self.classes_.size)

        return self._select(x, index.astype(np.int32), groups, problem)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return [rows] logits of the second class, or [rows, classes] logits.

        Args:
          X: [rows, features].
        """
        scores = self._scores(X)
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return [rows, classes] probabilities.

        Args:
          X: [rows, features].
        """
        scores = self._scores(X)
        if self.classes_.size == 2:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable classes.

        Args:
          X: [rows, features].
        """
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]
