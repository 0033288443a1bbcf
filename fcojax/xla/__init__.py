"""Forms of ordinary operations that XLA compiles well."""

# Their forms replace those of `jax.lax`.
from fcojax.xla import convolution as convolution
from fcojax.xla import linalg as linalg
