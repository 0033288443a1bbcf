"""Config files, their keys, and settings made from them."""
