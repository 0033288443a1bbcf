"""Run as a program of its own: clients on three devices with spoilt strangers, as JSON."""

import json

import jax
import numpy as np

import fcojax
from tests.laws import test_rows_of_strangers as strangers


def main():
    """The states and counts of some algorithms, for clean and for spoilt rows."""
    mesh, found = fcojax.client_mesh(3), {}
    for name in strangers.SOME:
        for work in strangers.WORKS:
            found[f"{name} {work}"] = [
                np.concatenate(
                    [np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(ends)]
                ).tolist()
                for bad in (None, np.nan, 1e300)
                for ends in [
                    strangers.after(
                        name, work, fcojax.shard_clients(strangers.population(bad), mesh)
                    )
                ]
            ]
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 3)
    jax.config.update("jax_enable_x64", True)
    main()
