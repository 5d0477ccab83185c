"""Which instructions exist?  One table per family, and a parser."""
