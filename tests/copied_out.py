"""Run a package's tests with the package moved out of the library, under another name.

    python tests/copied_out.py [NAME ...]

In a copy of the library, the package ``fcojax.NAME`` is moved out and renamed ``own_NAME``, and
imports of ``fcojax.NAME`` are redirected. This shows that it uses only public names of the core.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
# The tests of each package, including those of its laws.
TESTS = {
    "reference": "test_reference.py",
    "uploads": "laws/test_upload_laws.py laws/test_error_feedback.py laws/test_modular_sums.py "
    "engine/test_compressed_uploads.py engine/test_broadcast.py engine/test_codecs.py",
    "robust": "laws/test_robust_laws.py engine/test_robust_uploads.py engine/test_norm_bounds.py",
    "attacks": "laws/test_attacks.py",
    "privacy": "laws/test_accounting.py engine/test_private_uploads.py engine/test_banded_noise.py",
    "rows": "test_rows.py",
    "theory": "theory",
    "check": "check",
    "networks": "networks",
    "datasets": "datasets",
}
ALIAS = """
import importlib
import importlib.abc
import importlib.util
import sys


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == "fcojax.{room}" or name.startswith("fcojax.{room}."):
            return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return importlib.import_module(spec.name.replace("fcojax.{room}", "own_{room}", 1))

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Alias())
"""


def moved_out(room: str, folder: pathlib.Path) -> None:
    """Copy the library and the tests to a folder, with a package beside the library."""
    for name in ("fcojax", "tests", "experiments", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    place = folder / "fcojax" / room
    source = place if place.is_dir() else place.with_suffix(".py")
    own = folder / source.name.replace(room, f"own_{room}")
    shutil.move(source, own)
    for path in own.rglob("*.py") if own.is_dir() else [own]:
        text = path.read_text("utf-8")
        path.write_text(re.sub(rf"\bfrom fcojax\.{room}\b", f"from own_{room}", text), "utf-8")
    (folder / "alias.py").write_text(ALIAS.format(room=room), "utf-8")


def main(rooms: list[str]) -> int:
    """Run the tests of each package; return the number of packages that failed."""
    failed = []
    for room in rooms or TESTS:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            moved_out(room, folder)
            tests = [f"tests/{path}" for path in TESTS[room].split()]
            command = [sys.executable, "-m", "pytest", "-p", "alias", "-m", "not slow", *tests]
            if subprocess.run(command, cwd=folder, check=False).returncode:
                failed.append(room)
        print(f"{room}: {'failed' if room in failed else 'passed'}", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
