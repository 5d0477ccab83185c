"""Code that counts: routines, and the instrument that calls them."""
