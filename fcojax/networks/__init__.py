"""Neural networks as problems: Flax modules, and the networks of federated papers.

A model is a Linen module, a function of ``rngs`` that builds an NNX one, or the ``Functions`` of a
model of Haiku, Equinox or plain JAX. Dropout and the like draw from the batch's key, which differs
between clients, steps and rounds, and are off where a point is evaluated. ``network`` classifies;
``loss_of`` gives the loss of another task.

Flax is a core dependency; ``fcojax.networks`` is imported when it is first used.
"""

from fcojax.networks.classes import network
from fcojax.networks.images import conv_net, emnist_net, two_layer
from fcojax.networks.kernels import dense_kernels
from fcojax.networks.modules import Functions, functions_of, loss_of
from fcojax.networks.recurrent import char_gru

__all__ = [
    "Functions",
    "char_gru",
    "conv_net",
    "dense_kernels",
    "emnist_net",
    "functions_of",
    "loss_of",
    "network",
    "two_layer",
]
