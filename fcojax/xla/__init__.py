"""Forms of ordinary operations that XLA compiles well."""
