"""Which instructions exist: one table per family, and a parser."""
