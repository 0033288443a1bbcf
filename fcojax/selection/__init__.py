"""From a data set to a model one can defend: paths of strengths, folds, criteria, what was sent."""

from fcojax.selection.criteria import Criterion, aic, bic, ebic
from fcojax.selection.folds import Folds, Split, by_client, by_example, hold_out
from fcojax.selection.ledger import Ledger
from fcojax.selection.path import Path, path
from fcojax.selection.select import Selection, select

__all__ = [
    "Criterion",
    "Folds",
    "Ledger",
    "Path",
    "Selection",
    "Split",
    "aic",
    "bic",
    "by_client",
    "by_example",
    "ebic",
    "hold_out",
    "path",
    "select",
]
