"""All benchmarks on the current device, in one command and about ten minutes.

    python -m benchmarks.accelerator [--out=table.md] [--quick] [--only=W1,sweep] [--minutes=10]

W1 to W8, the sweep from 1 to 10,000 points and precisions, in float32: milliseconds per round,
beside hand-written JAX on the same cohorts and minibatches, and fractions of the peaks that are
measured in the same run. Also one call of ``run``, whether two
processes give the same bits, the launcher's main job, and runs whose times others have published.
Each section runs in its own process with a time limit, so a crash or a hang loses only that
section. Rows are printed at once, as JSON lines; at the end there is a table, and ``--out`` writes
both to files.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from benchmarks.cases import table

# Time limits of the sections in seconds; together they may not exceed ``--minutes``.
LIMITS = {
    "peaks": 60,
    "W1": 50,
    "W2": 50,
    "W3": 70,
    "sweep": 100,
    "W5": 80,
    "W6": 80,
    "W7": 90,
    "calls": 30,
    "bits": 120,
    "main job": 150,
    "published": 120,
    "W8": 90,
    "precision": 100,
}
_COLUMNS = {
    "case": "case",
    "ms": "ms",
    "by_hand_ms": "plain JAX, ms",
    "ratio": "ratio",
    "seconds": "seconds",
    "theirs": "published",
    "same_bits": "same bits",
    "of_products": "of peak products",
    "of_bandwidth": "of peak bandwidth",
    "gflops": "GFLOP/s",
    "gbytes": "GB/s",
    "first_run_s": "first run, s",
    "objective": "objective",
    "by_hand_objective": "plain JAX, objective",
    "off_by": "off highest by",
    "failed": "failed",
}


def rows_of(section: str, quick: bool, seconds: float) -> Iterator[dict]:
    """Yield the rows of a section from its own process, and one more if it fails or times out."""
    command = [sys.executable, "-m", "benchmarks.accelerator", f"--section={section}"]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command + ["--quick"] * quick, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        stopped = threading.Event()
        clock = threading.Timer(max(seconds, 0.0), lambda: (stopped.set(), process.kill()))
        clock.start()
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait()
        finally:
            clock.cancel()
            process.kill()
        if stopped.is_set():
            yield {"section": section, "case": section, "failed": f"stopped after {seconds:.0f} s"}
        elif status:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no reason given"])[-1]
            yield {"section": section, "case": section, "failed": f"{last[:200]} ({status})"}


def with_shares(row: dict, known: dict[str, float]) -> dict:
    """Return the row with its ratio and its fractions of the measured peaks."""
    row = dict(row)
    if "by_hand_ms" in row:
        row["ratio"] = row["ms"] / row["by_hand_ms"]
    for name, peak, share in (
        ("operations", "gflops", "of_products"),
        ("bytes", "gbytes", "of_bandwidth"),
    ):
        if name in row and peak in known:
            row[share] = row[name] / (1e6 * row["ms"]) / known[peak]
    return row


def peaks_in(rows: list[dict]) -> dict[str, float]:
    """Return the peaks of float32 products at full precision, and of reading and writing."""
    found = {row["case"]: row for row in rows if row["section"] == "peaks"}
    cases = (("gflops", "products, highest"), ("gbytes", "read and write"))
    return {name: found[case][name] for name, case in cases if name in found.get(case, {})}


def tables(rows: list[dict]) -> str:
    """Return a Markdown table for each section, below a line about the device."""
    parts = []
    for section in dict.fromkeys(row["section"] for row in rows):
        shown = [row for row in rows if row["section"] == section]
        parts += [
            f"{row['number']} x {row['device']} ({row['backend']}), JAX {row['jax']}, float32\n"
            for row in shown
            if row["case"] == "device"
        ]
        shown = [row for row in shown if row["case"] != "device"]
        parts.append(f"### {section}\n\n{table(shown, _COLUMNS)}")
    return "\n".join(parts)


def measure_section(section: str, quick: bool) -> None:
    """Measure one section in this process, and print its rows."""
    import jax

    from benchmarks.on_device import SECTIONS

    jax.config.update("jax_default_matmul_precision", "highest")
    for row in SECTIONS[section](quick):
        print(json.dumps({"section": section} | row), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print rows and table, or measure one section."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator")
    parser.add_argument("--out", type=pathlib.Path, help="the table's file; JSON goes beside it")
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument("--only", default=",".join(LIMITS), help="sections, comma-separated")
    parser.add_argument("--minutes", type=float, default=10.0, help="for everything")
    parser.add_argument("--section", choices=list(LIMITS), help="measure one in this process")
    options = parser.parse_args(arguments)
    if options.section:
        measure_section(options.section, options.quick)
        return
    unknown = set(options.only.split(",")) - set(LIMITS)
    if unknown:
        parser.error(f"no section is called {min(unknown)}; choose from {', '.join(LIMITS)}")
    end, rows = time.monotonic() + 60 * options.minutes, []
    for section in options.only.split(","):
        left = min(LIMITS[section], end - time.monotonic())
        for row in rows_of(section, options.quick, left):
            rows.append(with_shares(row, peaks_in(rows)))
            print(json.dumps(rows[-1]), flush=True)
            if options.out:  # kept if a later section fails
                options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1))
                options.out.write_text(tables(rows))
    print("\n" + tables(rows), flush=True)


if __name__ == "__main__":
    main()
