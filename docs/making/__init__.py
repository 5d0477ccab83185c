"""The text of the generated pages; ``docs/generate.py`` writes them."""
