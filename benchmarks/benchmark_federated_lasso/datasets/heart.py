"""Heart disease at four hospitals: a given file, or synthetic rows of the same sizes.

The file is an npz with ``X`` (rows x 13, missing values as NaN), ``num`` (above 0: disease) and
``hospital`` (0 to 3), from the processed files of the UCI repository.
"""

import numpy as np
from benchopt import BaseDataset  # pyright: ignore[reportMissingImports]


class Dataset(BaseDataset):
    """Columns are standardised, and missing values replaced by the column's mean."""

    name = "heart"
    parameters = {"path": [None]}

    def get_data(self):
        """Return one site for each hospital."""
        x, y, site = self._made() if self.path is None else self._read()
        x = x - np.nanmean(x, axis=0)
        x = np.nan_to_num(x / np.nanstd(x, axis=0))
        sites = [(x[site == one], y[site == one]) for one in np.unique(site)]
        return {"sites": sites, "truth": None, "labels": True}

    def _read(self):
        with np.load(self.path) as file:
            return file["X"].astype(float), np.where(file["num"] > 0, 1.0, -1.0), file["hospital"]

    def _made(self):
        rng = np.random.default_rng(0)
        site = np.repeat(range(4), (303, 294, 123, 200))
        x = rng.normal(size=(len(site), 13)) + rng.normal(size=(4, 13))[site] / 2
        risk = x @ np.where(np.arange(13) < 5, 1.0, 0.0) + rng.normal(size=len(site))
        return x, np.where(risk > 0, 1.0, -1.0), site
