"""Names for other distributions, such as ``fcojax-sites``, and for the launcher.

``import fcojax`` is for users. A package that builds on the library imports ``fcojax``, its public
packages and this module; the library itself imports a name where it is defined. The names follow
the deprecation policy, and are documented where they are defined.
"""

# ruff: noqa: F401
from fcojax.arguments import checked_value, shown, validated
from fcojax.engine import remote
from fcojax.engine.blocks import Block
from fcojax.engine.compaction import take_points
from fcojax.engine.hparams import as_arrays, at_round, is_schedule, num_points, take
from fcojax.engine.members import draw_cohort, local_handle
from fcojax.engine.optimality import VIOLATION, pooled_gradient, violation_at
from fcojax.engine.placed import Placed, payload_bytes, place, sweep_blocks
from fcojax.engine.plan import Program, as_plan
from fcojax.engine.solve import Outcome, solve_traced
from fcojax.engine.stream import on_disk
from fcojax.engine.validation import require_run
from fcojax.memo import jit_per, memoised
from fcojax.shuffle import Seed, words
from fcojax.uploads.stack import STACK
from fcojax.uploads.transform import Noise
from fcojax.xla.linalg import singular_values, symmetric_eigh
from fcojax.xla.rules import in_full_precision, pretend
