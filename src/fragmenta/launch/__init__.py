"""Launches: a kernel, its arguments, its result, and the threads that run it."""
