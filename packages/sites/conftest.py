"""Settings of the library's own tests: float64, fast compilation, bounded memory."""

import importlib.util
import pathlib

import fcojax.experiments  # noqa: F401  puts the launcher on the path

_path = pathlib.Path(__file__).parent.parent.parent / "tests" / "conftest.py"
_spec = importlib.util.spec_from_file_location("settings_of_the_library", _path)
assert _spec is not None and _spec.loader is not None
_settings = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_settings)

room_for_compiled_programs = _settings.room_for_compiled_programs
memory_for_the_next_test = _settings.memory_for_the_next_test
