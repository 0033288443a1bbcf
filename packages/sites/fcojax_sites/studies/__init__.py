"""Studies of sites."""

import fcojax.experiments  # noqa: F401  puts the launcher on the path
