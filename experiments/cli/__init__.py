"""The command line: flags, help and output to the console."""
