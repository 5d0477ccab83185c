"""The tables of all families.  A row reads like the manual."""
