"""C-index and accuracy on test rows, by silo and pooled, with intervals over patients."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Fields = dict[str, np.ndarray]


class Scores(NamedTuple):
    """Scores of one model, or of one model for each draw of patients.

    Attributes:
      silos: [..., silos].
      pooled: [...], the score of all test rows together.
    """

    silos: np.ndarray
    pooled: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """[...], the plain mean over the silos."""
        return np.nanmean(self.silos, axis=-1)


def concordance(time: np.ndarray, event: np.ndarray, risk: np.ndarray) -> np.ndarray:
    """Return which pairs of rows are comparable and which of these are in order, [2, rows, rows].

    As Harrell defines it, the pair (i, j) is comparable if the event of i is observed and j lives
    longer, or is censored at the same time. It is in order if i has the larger risk; equal risks
    count one half.

    Example:
      >>> pairs = concordance(np.array([1.0, 2.0, 2.0]), np.array([1, 0, 1]), np.array([3.0, 1, 1]))
      >>> pairs.sum(axis=(1, 2)).tolist()
      [3.0, 2.5]
    """
    later = (time[:, None] < time) | ((time[:, None] == time) & (event == 0))
    ordered = (event[:, None] == 1) & later
    agree = np.where(risk[:, None] > risk, 1.0, np.where(risk[:, None] == risk, 0.5, 0.0))
    return np.stack([ordered, ordered * agree]).astype(float)


def c_index(rows: Fields, risk: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the C-index with each row counted ``counts`` times, [draws, rows]."""
    pairs = concordance(rows["time"], rows["event"], risk)
    possible, agreed = np.einsum("di,pij,dj->pd", counts, pairs, counts, optimize=True)
    # A draw without a comparable pair has no index.
    return np.divide(agreed, possible, out=np.full(len(counts), np.nan), where=possible > 0)


def accuracy(rows: Fields, logit: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the share of rows that a threshold of 1/2 classifies correctly, [draws]."""
    return counts @ ((logit > 0) == rows["y"]) / counts.sum(axis=1)


Measure = Callable[[Fields, np.ndarray, np.ndarray], np.ndarray]


def scores(
    measure: Measure, test: list[Fields], predicted: list[np.ndarray], num_draws: int = 0
) -> Scores:
    """Return the scores of predictions, or their bootstrap over the patients within each silo.

    Args:
      measure: ``(rows, predictions, counts) -> [draws]``.
      test: the test rows of each silo.
      predicted: the predictions for them.
      num_draws: the number of bootstrap draws; 0 scores the rows themselves.
    """
    counts = [_counts(len(p), num_draws, seed) for seed, p in enumerate(predicted)]
    silos = [measure(*given) for given in zip(test, predicted, counts, strict=True)]
    whole = {name: np.concatenate([rows[name] for rows in test]) for name in test[0]}
    pooled = measure(whole, np.concatenate(predicted), np.concatenate(counts, axis=1))
    if not num_draws:
        return Scores(np.stack(silos, axis=-1)[0], pooled[0])
    return Scores(np.stack(silos, axis=-1), pooled)


def _counts(num_rows: int, num_draws: int, seed: int) -> np.ndarray:
    """Return how often each row is drawn, equal for all models, so that differences are paired."""
    if not num_draws:
        return np.ones((1, num_rows))
    draws = np.random.default_rng(seed).multinomial(
        num_rows, np.full(num_rows, 1 / num_rows), size=num_draws
    )
    return draws.astype(float)
