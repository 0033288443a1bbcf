"""Groups of columns by name, for group penalties."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fcojax.extend import shown, validated


@validated
def group_labels(names: Sequence[str], groups: Mapping[str, str | Iterable[str]]) -> np.ndarray:
    """Return the group of each column, as ``group_l2(labels=...)`` takes it.

    A column in no group forms a group by itself. A column in two groups is refused, because the
    norms of groups that overlap have another prox.

    Args:
      names: the names of the columns.
      groups: for each group the names of its columns, or patterns with ``*`` and ``?``.

    Example:
      >>> group_labels(["age", "lab_a", "lab_b", "dose"], {"labs": "lab_*"}).tolist()
      [1, 0, 0, 2]
    """
    found = np.full(len(names), -1)
    for index, (group, patterns) in enumerate(groups.items()):
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            matches = [at for at, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)]
            if not matches:
                raise ValueError(
                    f"{pattern} of group {group} matches no column; pass names among "
                    f"{shown(names)}."
                )
            for at in matches:
                if found[at] not in (-1, index):
                    raise ValueError(
                        f"{names[at]} is in the groups {list(groups)[found[at]]} and {group}; "
                        "pass groups that do not overlap."
                    )
                found[at] = index
    alone = found < 0
    found[alone] = len(groups) + np.arange(alone.sum())
    return found
