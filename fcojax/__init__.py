"""fcojax."""
