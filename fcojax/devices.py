"""Where a run is computed: meshes of devices, and how many clients and points run together."""

from fcojax.engine.placement.chunk_size import sized
from fcojax.engine.placement.mesh import client_mesh, device_mesh, shard_clients, spread
from fcojax.engine.tuning import fastest_chunk_size, padded_share

__all__ = [
    "client_mesh",
    "device_mesh",
    "fastest_chunk_size",
    "padded_share",
    "shard_clients",
    "sized",
    "spread",
]
