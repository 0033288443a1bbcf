"""Forms of ordinary operations that XLA compiles well."""

from fcojax.xla import convolution as convolution  # its forms replace those of `jax.lax`
