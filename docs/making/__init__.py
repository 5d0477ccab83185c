"""What do the generated pages say?  ``docs/generate.py`` writes them."""
