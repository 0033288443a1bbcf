"""Where a run is computed: devices, and how many clients at a time."""
