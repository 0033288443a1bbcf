"""Networks for small images: fully connected, and convolutional with dense layers on top."""

from collections.abc import Sequence
from typing import Literal

from flax import nnx
from jax.typing import DTypeLike

from fcojax.arguments import validated
from fcojax.networks.modules import Build
from fcojax.types import Count

GLOROT = nnx.initializers.glorot_uniform()
Shape = tuple[int, int, int]


class TwoLayer(nnx.Module):
    """A fully connected network with two hidden layers and ReLU."""

    def __init__(self, num_features, num_hidden, num_classes, dtype, rngs):
        options = {"kernel_init": GLOROT, "dtype": dtype, "rngs": rngs}
        self.dense_1 = nnx.Linear(num_features, num_hidden, **options)
        self.dense_2 = nnx.Linear(num_hidden, num_hidden, **options)
        self.dense_3 = nnx.Linear(num_hidden, num_classes, **options)

    def __call__(self, x):
        x = nnx.relu(self.dense_1(x.reshape(x.shape[0], -1)))
        return self.dense_3(nnx.relu(self.dense_2(x)))


class ConvNet(nnx.Module):
    """Two 5 x 5 convolutions, each followed by 2 x 2 max pooling, and dense layers."""

    def __init__(self, shape, num_filters, num_hidden, num_classes, *, padding, dtype, rngs):
        self.shape = shape
        first, second = num_filters
        options = {"kernel_init": GLOROT, "dtype": dtype, "rngs": rngs}
        self.conv_1 = nnx.Conv(shape[2], first, (5, 5), padding=padding, **options)
        self.conv_2 = nnx.Conv(first, second, (5, 5), padding=padding, **options)
        lost = 0 if padding == "SAME" else 4
        height, width = (((size - lost) // 2 - lost) // 2 for size in shape[:2])
        sizes = [height * width * second, *num_hidden, num_classes]
        self.num_dense = len(sizes) - 1
        for place in range(self.num_dense):
            layer = nnx.Linear(sizes[place], sizes[place + 1], **options)
            setattr(self, f"dense_{place + 1}", layer)

    def __call__(self, x):
        x = x.reshape(x.shape[0], *self.shape)
        for layer in (self.conv_1, self.conv_2):
            x = nnx.max_pool(nnx.relu(layer(x)), (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for place in range(1, self.num_dense):
            x = nnx.relu(getattr(self, f"dense_{place}")(x))
        return getattr(self, f"dense_{self.num_dense}")(x)


class EmnistNet(nnx.Module):
    """Two 3 x 3 convolutions, 2 x 2 max pooling, and two dense layers with dropout before each."""

    def __init__(self, shape, num_classes, dropout_rates, dtype, rngs):
        self.shape = shape
        options = {"kernel_init": GLOROT, "dtype": dtype, "rngs": rngs}
        self.conv_1 = nnx.Conv(shape[2], 32, (3, 3), padding="VALID", **options)
        self.conv_2 = nnx.Conv(32, 64, (3, 3), padding="VALID", **options)
        self.dropout_1 = nnx.Dropout(dropout_rates[0], rngs=rngs)
        num_pooled = (shape[0] - 4) // 2 * ((shape[1] - 4) // 2) * 64
        self.dense_1 = nnx.Linear(num_pooled, 128, **options)
        self.dropout_2 = nnx.Dropout(dropout_rates[1], rngs=rngs)
        self.dense_2 = nnx.Linear(128, num_classes, **options)

    def __call__(self, x):
        x = x.reshape(x.shape[0], *self.shape)
        x = nnx.relu(self.conv_2(nnx.relu(self.conv_1(x))))
        x = self.dropout_1(nnx.max_pool(x, (2, 2), (2, 2)))
        x = nnx.relu(self.dense_1(x.reshape(x.shape[0], -1)))
        return self.dense_2(self.dropout_2(x))


@validated
def two_layer(
    num_features: Count = 784,
    num_hidden: Count = 200,
    num_classes: Count = 10,
    *,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build a fully connected network with the layers ``dense_1``, ``dense_2`` and ``dense_3``.

    Args:
      num_features: number of inputs of an example, 784 for MNIST.
      num_hidden: units of each of the two hidden layers.
      num_classes: number of outputs.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 784), jnp.float32)
      >>> init = networks.functions_of(networks.two_layer(), image, (1, 10)).init
      >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
      199210

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, appendix B.5.
    """
    return lambda rngs: TwoLayer(num_features, num_hidden, num_classes, dtype, rngs)


@validated
def conv_net(
    shape: Shape = (28, 28, 1),
    num_filters: tuple[Count, Count] = (32, 64),
    num_hidden: Count | Sequence[Count] = 512,
    num_classes: Count = 10,
    *,
    padding: Literal["SAME", "VALID"] = "SAME",
    dtype: DTypeLike | None = None,
) -> Build:
    """Build a network with layers ``conv_1``, ``conv_2`` and ``dense_1``, ``dense_2``, ...

    The default is the network of McMahan et al. (AISTATS 2017) with 1,663,370 parameters, also used
    by Yuan, Zaheer and Reddi. ``conv_net(num_hidden=2048, num_classes=62)`` is that of LEAF, used
    by Zhang et al. (FedPD, 2021); ``conv_net((32, 32, 3), (64, 64), (384, 192), padding="VALID")``
    is that of Acar et al. (FedDyn, ICLR 2021) for CIFAR.

    Args:
      shape: height, width and channels of an image.
      num_filters: number of filters of each convolution.
      num_hidden: units of the hidden dense layer, or of each of them.
      num_classes: number of outputs.
      padding: padding of the convolutions.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 28, 28, 1), jnp.float32)
      >>> init = networks.functions_of(networks.conv_net(), image, (1, 10)).init
      >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
      1663370
    """
    hidden = (num_hidden,) if isinstance(num_hidden, int) else tuple(num_hidden)
    return lambda rngs: ConvNet(
        shape, num_filters, hidden, num_classes, padding=padding, dtype=dtype, rngs=rngs
    )


@validated
def emnist_net(
    shape: Shape = (28, 28, 1),
    num_classes: Count = 62,
    *,
    dropout_rates: tuple[float, float] = (0.25, 0.5),
    dtype: DTypeLike | None = None,
) -> Build:
    """Build the network of FedJAX and TensorFlow Federated for EMNIST, with 1,206,590 parameters.

    The layers are ``conv_1``, ``conv_2``, ``dense_1`` and ``dense_2``.

    Args:
      shape: height, width and channels of an image.
      num_classes: number of outputs.
      dropout_rates: rate of the dropout before each dense layer; zero for none.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> image = jax.ShapeDtypeStruct((1, 28, 28, 1), jnp.float32)
      >>> init = networks.functions_of(networks.emnist_net(), image, (1, 62)).init
      >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
      1206590

    References:
      Reddi et al., "Adaptive federated optimization", ICLR 2021, table 4.
    """
    return lambda rngs: EmnistNet(shape, num_classes, dropout_rates, dtype, rngs)
