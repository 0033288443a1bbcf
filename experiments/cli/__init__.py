"""What is typed and what is printed: flags, help and the console."""
