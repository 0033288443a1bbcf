"""The two tables as they go into the summary."""

from experiments.report.rows import select
from experiments.studies.compare.methods import METHODS


def summarise(config, rows):
    """Per problem and method, the limits and the best point of the grid."""
    tables = {}
    for problem in config.problems:
        own = select(rows, problem=problem)
        [facts] = select(own, part="problem")
        tables[problem] = {"problem": facts, "methods": {}}
        for name in config.methods:
            seen = select(own, method=name)
            far, near = select(seen, part="limit")
            [best] = select(seen, part="point", best=True)
            tables[problem]["methods"][METHODS[name].text] = {
                "limit": far["distance"],
                "limit at half the step": near["distance"],
                "nonzeros": far["nonzeros"],
            } | {key: value for key, value in best.items() if key not in _PLACE}
    return tables


_PLACE = ("part", "problem", "method", "best")
