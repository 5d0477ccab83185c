"""Code that moves second values along: routines, and the instrument that calls them."""
