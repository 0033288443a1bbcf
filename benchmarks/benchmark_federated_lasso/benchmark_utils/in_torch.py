"""FedDualAvg by hand in torch, with full local steps and slopes by autograd."""

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmark_utils.by_hand import NUM_STEPS
from benchmark_utils.problem import GROUP


class FedDualAvg:
    """The server; ``sent`` counts the bytes of all messages."""

    def __init__(self, problem, rate: float):
        """Start at zero, in float64."""
        self.kind, self.strength, self.rate = problem.kind, problem.strength, rate
        tensor = torch.from_numpy
        self.sites = [(tensor(x), tensor(np.asarray(y, x.dtype))) for x, y in problem.sites]
        x, _ = self.sites[0]
        self.dual, self.elapsed = x.new_zeros(x.shape[1]), 0.0
        self.rounds = self.sent = 0

    @property
    def model(self) -> np.ndarray:
        """The model: one prox of the dual point."""
        return self.prox(self.dual, self.elapsed).numpy()

    def prox(self, v, step: float):
        """Return the prox of ``step`` times the penalty."""
        cut = step * self.strength
        if self.kind != "group_lasso":
            return functional.softshrink(v, cut)
        groups = v.reshape(-1, GROUP)
        sizes = groups.norm(dim=1, keepdim=True)
        kept = torch.where(sizes > cut, 1 - cut / sizes, 0.0)
        return (kept * groups).ravel()

    def slope(self, w, x, y):
        """Return the gradient of the mean loss on some rows."""
        w.requires_grad_()
        scores = x @ w
        if self.kind == "logistic":
            loss = functional.softplus(-y * scores, threshold=1e3).mean()
        else:
            loss = functional.mse_loss(scores, y) / 2
        return torch.autograd.grad(loss, w)[0]

    def round(self) -> None:
        """Let all sites take their steps and average what they moved."""
        total, mean = sum(len(y) for _, y in self.sites), torch.zeros_like(self.dual)
        for x, y in self.sites:
            moved = torch.zeros_like(self.dual)
            for step in range(NUM_STEPS):
                w = self.prox(self.dual + moved, self.elapsed + step * self.rate)
                moved -= self.rate * self.slope(w, x, y)
            mean += len(y) / total * moved
            self.sent += 2 * 8 * (moved.numel() + 1)
        self.dual += mean
        self.elapsed += NUM_STEPS * self.rate
        self.rounds += 1
