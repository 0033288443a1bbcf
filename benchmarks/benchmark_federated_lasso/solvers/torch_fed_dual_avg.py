"""FedDualAvg by hand in torch."""

from benchmark_utils.in_torch import FedDualAvg
from benchmark_utils.problem import rate
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports]


class Solver(BaseSolver):
    """The loop over sites and steps, with slopes by autograd."""

    name = "torch-FedDualAvg"
    requirements = ["pip::torch"]

    def set_objective(self, problem):
        """Keep the problem."""
        self.problem, self.rate = problem, rate(problem)

    def run(self, cb):
        """Run ten rounds between two looks."""
        self.server = FedDualAvg(self.problem, self.rate)
        while cb():
            for _ in range(10):
                self.server.round()

    def get_result(self):
        """Return the model and what was sent."""
        return {"w": self.server.model, "rounds": self.server.rounds, "sent": self.server.sent}
