"""What is minimised: losses, populations, and the problems of the sources."""
