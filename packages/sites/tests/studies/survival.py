import numpy as np

import fcojax


def survival():
    rng = np.random.default_rng(0)
    sizes = [7, 4]
    rows = {
        "x": rng.normal(size=(11, 2)),
        "time": rng.integers(1, 5, size=11).astype(float),  # ties
        "event": rng.integers(0, 2, size=11),
    }
    return fcojax.from_rows(rows, sizes, weights="examples")
