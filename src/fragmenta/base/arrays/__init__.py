"""Arrays: checks of what is given, and parts of them for threads."""
