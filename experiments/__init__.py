"""The launcher and the experiments: from a config file to rows, claims and figures."""
