"""Forms of ordinary operations that XLA runs well."""
