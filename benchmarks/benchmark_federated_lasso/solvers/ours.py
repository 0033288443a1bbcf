"""Five methods of fcojax on the same problem, with five full local steps in each round."""

from benchmark_utils.ours import METHODS, Ours
from benchopt import BaseSolver  # pyright: ignore[reportMissingImports]


class Solver(BaseSolver):
    """Compiled before the timing."""

    name = "fcojax"
    parameters = {"method": METHODS}
    requirements = ["pip::fcojax"]

    def set_objective(self, problem):
        """Place the data and compile."""
        self.run_of = Ours(problem, self.method)
        self.run_of.advance(10)

    def run(self, cb):
        """Run ten rounds between two evaluations."""
        self.run_of.restart()
        while cb():
            self.run_of.advance(10)

    def get_result(self):
        """Return the model and the bytes sent."""
        return {"w": self.run_of.model, "rounds": self.run_of.rounds, "sent": self.run_of.sent}
