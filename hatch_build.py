"""Puts the launcher and the configs into the wheel, in a folder that takes no top-level names."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LauncherHook(BuildHookInterface):
    """Where ``fcojax/__main__.py`` finds them; an editable install finds them in the clone."""

    def initialize(self, version, build_data):
        """Adds both folders to a wheel that is not editable."""
        if version == "standard":
            for folder in ("experiments", "configs"):
                build_data["force_include"][folder] = f"fcojax/_launcher/{folder}"
