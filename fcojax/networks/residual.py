"""A residual network for CIFAR images with group normalisation.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016, section 4.2; Wu
and He, "Group normalization", ECCV 2018.
"""

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from fcojax.extend import validated
from fcojax.networks.modules import Build
from fcojax.types import Count


class Block(nnx.Module):
    """Two 3 x 3 convolutions and a shortcut, subsampled and zero-padded where the shape changes."""

    def __init__(self, num_in, num_out, num_groups, dtype, rngs):
        self.stride = 1 if num_in == num_out else 2
        self.num_new = num_out - num_in
        self.conv_1 = _conv(num_in, num_out, rngs, dtype, self.stride)
        self.norm_1 = nnx.GroupNorm(num_out, num_groups=num_groups, dtype=dtype, rngs=rngs)
        self.conv_2 = _conv(num_out, num_out, rngs, dtype)
        self.norm_2 = nnx.GroupNorm(num_out, num_groups=num_groups, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        inner = nnx.relu(self.norm_1(self.conv_1(x)))
        inner = self.norm_2(self.conv_2(inner))
        passed = x[:, :: self.stride, :: self.stride]
        passed = jnp.pad(passed, ((0, 0), (0, 0), (0, 0), (0, self.num_new)))
        return nnx.relu(passed.astype(inner.dtype) + inner)


class ResNet(nnx.Module):
    """One convolution, three stages of blocks, global mean pooling and a dense layer."""

    def __init__(self, shape, num_classes, blocks_per_stage, num_groups, dtype, rngs):
        self.shape = shape
        self.conv = _conv(shape[2], 16, rngs, dtype)
        self.norm = nnx.GroupNorm(16, num_groups=num_groups, dtype=dtype, rngs=rngs)
        widths = [width for width in (16, 32, 64) for _ in range(blocks_per_stage)]
        self.num_blocks = len(widths)
        for place, (before, width) in enumerate(zip([16, *widths], widths, strict=False)):
            block = Block(before, width, num_groups, dtype, rngs)
            setattr(self, f"block_{place + 1}", block)
        glorot = nnx.initializers.glorot_uniform()
        self.dense = nnx.Linear(64, num_classes, kernel_init=glorot, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x.reshape(x.shape[0], *self.shape))))
        for place in range(self.num_blocks):
            x = getattr(self, f"block_{place + 1}")(x)
        return self.dense(jnp.mean(x, axis=(1, 2)))


@validated
def resnet(
    shape: tuple[int, int, int] = (32, 32, 3),
    num_classes: Count = 10,
    *,
    blocks_per_stage: Count = 3,
    num_groups: Count = 2,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build a residual network with 6 n + 2 layers for n blocks per stage; by default ResNet-20.

    Shortcuts have no parameters: they skip every second pixel and add channels of zeros. Group
    normalisation replaces the batch normalisation of the paper, whose statistics clients cannot
    share. The default has 269,722 parameters.

    Args:
      shape: height, width and channels of an image.
      num_classes: number of outputs.
      blocks_per_stage: n.
      num_groups: groups of channels to normalise over, a divisor of 16.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
      >>> init = networks.functions_of(networks.resnet(), image, (1, 10)).init
      >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
      269722
    """
    return lambda rngs: ResNet(shape, num_classes, blocks_per_stage, num_groups, dtype, rngs)


def _conv(num_in, num_out, rngs, dtype, stride=1):
    he = nnx.initializers.he_normal()
    return nnx.Conv(
        num_in, num_out, (3, 3), stride, use_bias=False, kernel_init=he, dtype=dtype, rngs=rngs
    )
