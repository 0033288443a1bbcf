"""FedDualAvg in plain numpy, with full local steps and without fcojax."""

import numpy as np

NUM_STEPS = 5


class FedDualAvg:
    """The server; ``sent`` counts the bytes of all messages."""

    def __init__(self, problem, rate: float):
        """Start at zero."""
        x, _ = problem.sites[0]
        self.problem, self.rate = problem, rate
        self.dual, self.elapsed = np.zeros(x.shape[1]), 0.0
        self.rounds = self.sent = 0

    @property
    def model(self) -> np.ndarray:
        """The model, one prox of the dual point."""
        return self.problem.prox(self.dual, self.elapsed)

    def round(self) -> None:
        """Run the local steps of all sites and average their displacements."""
        problem, total = self.problem, sum(len(y) for _, y in self.problem.sites)
        mean = np.zeros_like(self.dual)
        for x, y in problem.sites:
            moved = np.zeros_like(self.dual)
            for step in range(NUM_STEPS):
                w = problem.prox(self.dual + moved, self.elapsed + step * self.rate)
                moved -= self.rate * problem.slope(w, x, y)
            mean += len(y) / total * moved
            self.sent += 2 * 8 * (moved.size + 1)
        self.dual += mean
        self.elapsed += NUM_STEPS * self.rate
        self.rounds += 1
