"""Let pages of Benchopt draw their curves without a network.

    python benchmarks/benchmark_federated_lasso/offline.py PAGE.html ...

Plotly goes into each page, from the Python package that Benchopt brings; every other script and
style that a page loads from elsewhere goes out, and tables with them.
"""

import pathlib
import re
import sys

from plotly import offline  # pyright: ignore[reportMissingImports]

ELSEWHERE = re.compile(r'<script[^>]*\ssrc="https?:[^>]*></script>|<link[^>]*\shref="https?:[^>]*>')


def offline_page(page: str) -> str:
    """Return a page that loads nothing from elsewhere.

    Args:
      page: the page, as Benchopt wrote it.
    """
    plotly = f"<script>{offline.get_plotlyjs()}</script>"
    found = ELSEWHERE.sub(lambda tag: plotly if "plotly" in tag[0] else "", page)
    if found.count(plotly) != 1:
        raise ValueError("the page loads plotly another way; pass a page of results of Benchopt.")
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        path.write_text(offline_page(path.read_text("utf-8")), "utf-8")
