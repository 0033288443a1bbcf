"""One, four and eight devices, however they are shared, give the same numbers."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest


@pytest.mark.slow
def test_one_to_eight_devices_give_the_same_numbers():
    root = pathlib.Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.on_many_devices"],
        cwd=root, capture_output=True, text=True, check=False,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": os.fspath(root / ".jax_cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    one = np.array(found.pop("1x1"))
    assert len(found) == 4 and np.isfinite(one).all() and np.unique(one).size > 100
    for mesh, numbers in found.items():
        np.testing.assert_allclose(numbers, one, rtol=1e-11, atol=1e-13, err_msg=mesh)
