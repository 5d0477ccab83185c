"""How does a fragment look?  Tables for terminals, papers and programs."""
