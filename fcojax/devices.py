"""Where a run is computed: meshes of devices, and how many clients and points run together."""

from fcojax.engine.placement.chunk_size import sized
from fcojax.engine.placement.mesh import device_mesh, shard_clients, spread

__all__ = ["device_mesh", "shard_clients", "sized", "spread"]
