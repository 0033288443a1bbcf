"""Write docs/results.md of the package and its pages from full runs, as ``fcojax results`` does.

python -m fcojax_sites.results [--only=sites] [--stored] [--data=DIR]
"""

import functools
import pathlib

from absl import app

import fcojax.experiments  # noqa: F401  puts the launcher on the path
from experiments.publishing import results
from experiments.publishing.runs import Run

DOCS = pathlib.Path(__file__).parent.parent / "docs"
RUNS = (
    Run("sites", "sites", figure="sites"),
    Run("flamby", "flamby", data="flamby", figure="fed_tcga_brca"),
)

if __name__ == "__main__":
    results.define_flags(str(DOCS / "results.md"))
    app.run(functools.partial(results.main, all_runs=RUNS))
