"""skglm on the pooled rows of all sites, as a reference."""

import numpy as np
from benchmark_utils.problem import GROUP
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports]
from benchopt.stopping_criterion import (  # pyright: ignore[reportMissingImports]
    SingleRunCriterion,
)


class Solver(BaseSolver):
    """Coordinate descent with working sets, to a tolerance of 1e-12."""

    name = "skglm-pooled"
    sampling_strategy = "run_once"
    stopping_criterion = SingleRunCriterion(strategy="run_once")
    requirements = ["pip::skglm"]

    def set_objective(self, problem):
        """Pool the rows."""
        from skglm import GroupLasso, Lasso, SparseLogisticRegression  # pyright: ignore

        self.x, self.y = problem.pooled()
        given = {"alpha": problem.strength, "fit_intercept": False, "tol": 1e-12}
        if problem.kind == "group_lasso":
            weights = np.ones(self.x.shape[1] // GROUP)
            self.model = GroupLasso(GROUP, weights=weights, **given)
        elif problem.kind == "logistic":
            self.model = SparseLogisticRegression(**given)
        else:
            self.model = Lasso(**given)
        self.model.fit(self.x, self.y)  # compile before the timing

    def run(self, _):
        """Fit."""
        self.model.fit(self.x, self.y)

    def get_result(self):
        """Return the weights; all rows are sent once."""
        w = np.asarray(self.model.coef_, float).ravel()
        return {"w": w, "rounds": 1, "sent": self.x.nbytes + self.y.nbytes}
