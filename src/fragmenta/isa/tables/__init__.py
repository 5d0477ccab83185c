"""One table for each family of instructions; a row reads like the manual."""
