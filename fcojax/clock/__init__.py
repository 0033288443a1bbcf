"""A virtual clock: speeds of clients, the seconds of a run, deadlines, and late uploads."""

from fcojax.clock.events import arrivals, asynchronous
from fcojax.clock.speeds import (
    Clock,
    by_size,
    deadline,
    log_normal,
    num_steps,
    seconds,
    truncated,
)

__all__ = [
    "Clock",
    "arrivals",
    "asynchronous",
    "by_size",
    "deadline",
    "log_normal",
    "num_steps",
    "seconds",
    "truncated",
]
