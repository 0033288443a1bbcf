"""Regularisation paths, and the choice of a strength by folds or information criteria."""

from fcojax_sites.selection.criteria import Criterion, aic, bic, ebic
from fcojax_sites.selection.folds import Folds, Split, by_client, by_example, hold_out
from fcojax_sites.selection.groups import group_labels
from fcojax_sites.selection.intervals import Intervals, intervals
from fcojax_sites.selection.ledger import Entry, Ledger
from fcojax_sites.selection.nonzeros import Nonzeros, nonzeros
from fcojax_sites.selection.path import Path, grid_of, path, search_on_host
from fcojax_sites.selection.search import Search
from fcojax_sites.selection.select import Selection, draw_folds, of_target, select, selection_of
from fcojax_sites.selection.solver import (
    ON_HOST,
    Fits,
    SolvedPath,
    Solver,
    Start,
    key_of_fold,
    solve_path,
)
from fcojax_sites.selection.stability import Stability, stability

__all__ = [
    "Criterion",
    "Folds",
    "Intervals",
    "Ledger",
    "Nonzeros",
    "Path",
    "Search",
    "Selection",
    "Split",
    "Stability",
    "aic",
    "bic",
    "by_client",
    "by_example",
    "ebic",
    "group_labels",
    "hold_out",
    "intervals",
    "nonzeros",
    "path",
    "select",
    "stability",
    # for the user's own solvers
    "ON_HOST",
    "Entry",
    "Fits",
    "SolvedPath",
    "Solver",
    "Start",
    "draw_folds",
    "grid_of",
    "key_of_fold",
    "of_target",
    "search_on_host",
    "selection_of",
    "solve_path",
]
