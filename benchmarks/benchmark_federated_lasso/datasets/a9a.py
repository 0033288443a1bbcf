"""LIBSVM's a9a, or another file of that format, divided by a Dirichlet draw."""

from benchopt import BaseDataset  # pyright: ignore[reportMissingImports]


class Dataset(BaseDataset):
    """Needs ``path``: ``benchopt run ... -d "a9a[path=/data/a9a.txt]"``."""

    name = "a9a"
    parameters = {"path": [None], "num_sites": [20], "alpha": [0.5]}

    def get_data(self):
        """Return the sites."""
        import numpy as np
        from sklearn.datasets import load_svmlight_file

        from fcojax.problems import partition

        if self.path is None:
            raise ValueError('a9a has no file; pass -d "a9a[path=/data/a9a.txt]".')
        x, y = load_svmlight_file(self.path)
        x, y = x.toarray(), np.where(y > 0, 1.0, -1.0)
        parts = partition.dirichlet(y > 0, self.num_sites, self.alpha)
        sites = [(x[one], y[one]) for one in parts.indices()]
        return {"sites": sites, "truth": None, "labels": True}
