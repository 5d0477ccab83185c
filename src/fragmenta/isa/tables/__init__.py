"""Which instructions does each family have?  A row reads like the manual."""
