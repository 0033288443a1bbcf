"""Orbax in one of several processes, without the others.

Orbax's newer interface, which reads these checkpoints too, has all processes meet for each of them
and read the same folder. Here the first process, which has gathered the state to take its hash,
reads and writes for all, and the older interface lets it.
"""

import pathlib
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import args as items


class Checkpointer:
    """The part of ``orbax.checkpoint.v1.training.Checkpointer`` that a run needs."""

    def __init__(self, folder: pathlib.Path, kept: int):
        """Opens the folder, and keeps the last so many checkpoints."""
        folder.mkdir(parents=True, exist_ok=True)
        alone = ocp.options.MultiprocessingOptions(
            active_processes={0}, barrier_sync_key_prefix="first"
        )
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                create=False, max_to_keep=kept, cleanup_tmp_directories=True,
                multiprocessing_options=alone,
            ),
        )  # fmt: skip

    def save_async(
        self, step: int, leaves: dict[str, np.ndarray], *, custom_metadata: dict[str, Any]
    ) -> "Checkpointer":
        """Begins to write; ``result`` waits for it."""
        state = items.Composite(state=items.PyTreeSave(leaves))
        self._manager.save(step, args=state, custom_metadata=custom_metadata)
        return self

    def result(self) -> None:
        """Returns when everything is on disk."""
        self._manager.wait_until_finished()

    def load(self, step: int) -> dict[str, np.ndarray]:
        """The leaves of a step."""
        return self._manager.restore(step, args=items.Composite(state=items.PyTreeRestore()))[
            "state"
        ]

    def metadata(self, step: int) -> Any:
        """What has the ``custom_metadata`` of a step."""
        return self._manager.metadata(step)

    def close(self) -> None:
        """Waits and lets go of the folder."""
        self._manager.close()
