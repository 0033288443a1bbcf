"""FedDualAvg in plain numpy."""

from benchmark_utils.by_hand import FedDualAvg
from benchmark_utils.problem import rate
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports]


class Solver(BaseSolver):
    """A plain loop over sites and steps."""

    name = "numpy-FedDualAvg"

    def set_objective(self, problem):
        """Keep the problem."""
        self.problem, self.rate = problem, rate(problem)

    def run(self, cb):
        """Run ten rounds between two evaluations."""
        self.server = FedDualAvg(self.problem, self.rate)
        while cb():
            for _ in range(10):
                self.server.round()

    def get_result(self):
        """Return the model and the bytes sent."""
        return {"w": self.server.model, "rounds": self.server.rounds, "sent": self.server.sent}
