"""Orbax in the first of several processes, which reads and writes for all.

Orbax's newer interface can read these checkpoints too, but synchronises all processes for each
checkpoint and needs a folder that all can read; the older one works in a single process.
"""

import pathlib
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import args as items


class Checkpointer:
    """The part of ``orbax.checkpoint.v1.training.Checkpointer`` that a run needs."""

    def __init__(self, folder: pathlib.Path, kept: int):
        """Open the folder, which keeps the last ``kept`` checkpoints."""
        folder.mkdir(parents=True, exist_ok=True)
        alone = ocp.options.MultiprocessingOptions(
            active_processes={0}, barrier_sync_key_prefix="first"
        )
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                create=False,
                max_to_keep=kept,
                cleanup_tmp_directories=True,
                multiprocessing_options=alone,
            ),
        )

    def save_async(
        self, step: int, leaves: dict[str, np.ndarray], *, custom_metadata: dict[str, Any]
    ) -> "Checkpointer":
        """Start writing; ``result`` waits for the end."""
        state = items.Composite(state=items.PyTreeSave(leaves))
        self._manager.save(step, args=state, custom_metadata=custom_metadata)
        return self

    def result(self) -> None:
        """Wait until everything is on disk."""
        self._manager.wait_until_finished()

    def load(self, step: int) -> dict[str, np.ndarray]:
        """Return the leaves of a step."""
        return self._manager.restore(step, args=items.Composite(state=items.PyTreeRestore()))[
            "state"
        ]

    def metadata(self, step: int) -> Any:
        """Return an object with the ``custom_metadata`` of a step."""
        return self._manager.metadata(step)

    def close(self) -> None:
        """Wait, and close the folder."""
        self._manager.close()
