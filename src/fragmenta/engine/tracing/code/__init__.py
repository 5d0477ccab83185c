"""Code that records: routines, and the instrument that calls them."""
