"""Program: states of clients on three devices, with bad rows of weight zero, as JSON."""

import json

import jax
import numpy as np

import fcojax
from tests.laws import test_rows_without_weight as rows


def main():
    """The states and counts of some algorithms, for clean and for spoilt rows."""
    mesh, found = fcojax.devices.client_mesh(3), {}
    for name in rows.SOME:
        for work in rows.WORKS:
            found[f"{name} {work}"] = [
                np.concatenate(
                    [np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(ends)]
                ).tolist()
                for bad in (None, np.nan, 1e300)
                for ends in [
                    rows.after(name, work, fcojax.devices.shard_clients(rows.population(bad), mesh))
                ]
            ]
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 3)
    jax.config.update("jax_enable_x64", True)
    main()
