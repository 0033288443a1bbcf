"""Mean loss over the rows of all sites plus a norm, with certificates and bytes sent."""

import numpy as np
from benchmark_utils.problem import made
from benchopt import BaseObjective  # pyright: ignore[reportMissingImports]
from benchopt.stopping_criterion import NoCriterion  # pyright: ignore[reportMissingImports]


class Objective(BaseObjective):
    """The problem, and the columns of its table."""

    name = "Federated lasso"
    min_benchopt_version = "1.9"
    parameters = {"kind": ["lasso", "logistic", "group_lasso"], "fraction": [0.2]}
    sampling_strategy = "callback"
    # The same number of rounds for all solvers.
    stopping_criterion = NoCriterion(strategy="callback")
    test_dataset_name = "made"

    def skip(self, sites, truth, labels):
        """Logistic regression needs classes."""
        if (self.kind == "logistic") != labels:
            return True, f"the targets are {'classes' if labels else 'numbers'}"
        if self.kind == "group_lasso" and sites[0][0].shape[1] % 4:
            return True, "the columns are not groups of four"
        return False, None

    def set_data(self, sites, truth, labels):
        """Fix the problem."""
        self.truth = truth
        self.problem = made(self.kind, sites, self.fraction)

    def get_objective(self):
        """Return the arguments of the solvers."""
        return {"problem": self.problem}

    def evaluate_result(self, w, rounds, sent):
        """Return the columns; ``f1`` compares with the planted support."""
        found, truth = w != 0, self.truth
        f1 = np.nan
        if truth is not None:
            f1 = 2 * np.sum(found & truth) / max(np.sum(found) + np.sum(truth), 1)
        columns = {"nonzeros": int(found.sum()), "f1": f1, "rounds": rounds, "bytes": sent}
        return self.problem.certificates(w) | columns

    def get_one_result(self):
        """Return a result for Benchopt's own tests."""
        dim = self.problem.sites[0][0].shape[1]
        return {"w": np.zeros(dim), "rounds": 0, "sent": 0}
