"""Synthetic sites of different sizes and means, with a planted support."""

import numpy as np
from benchopt import BaseDataset  # pyright: ignore[reportMissingImports]


class Dataset(BaseDataset):
    """Five sites; every fourth group of four columns is used."""

    name = "made"
    parameters = {"labels": [False, True], "dim": [48], "seed": [0]}

    def get_data(self):
        """Return the sites and the columns of the support."""
        rng = np.random.default_rng(self.seed)
        truth = (np.arange(self.dim) // 4) % 4 == 0
        weights = np.where(truth, rng.choice([-1.0, 1.0], self.dim), 0.0)
        sites = []
        for size in (60, 90, 120, 150, 180):
            x = rng.normal(size=(size, self.dim)) + rng.normal(size=self.dim) / 4
            own = weights + truth * rng.normal(size=self.dim) / 4
            y = x @ own + rng.normal(size=size)
            sites.append((x, np.where(y > 0, 1.0, -1.0) if self.labels else y))
        return {"sites": sites, "truth": truth, "labels": self.labels}
