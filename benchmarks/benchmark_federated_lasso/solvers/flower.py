"""Flower's FedAvg and FedProx, with the prox of the penalty after each mean."""

from benchmark_utils.problem import rate
from benchmark_utils.strategies import Thresholded
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports]


class Solver(BaseSolver):
    """The strategy and its mean are Flower's; messages do not leave this process."""

    name = "Flower-thresholded"
    parameters = {"strategy": ["FedAvg", "FedProx"]}
    requirements = ["pip::flwr"]

    def set_objective(self, problem):
        """Keep the problem."""
        self.problem, self.rate = problem, rate(problem)

    def run(self, cb):
        """Run ten rounds between two evaluations."""
        self.server = Thresholded(self.problem, self.rate, self.strategy)
        while cb():
            for _ in range(10):
                self.server.round()

    def get_result(self):
        """Return the model and the bytes sent."""
        return {"w": self.server.model, "rounds": self.server.rounds, "sent": self.server.sent}
