"""Config files, their keys and the settings that come out of them."""
