"""Explores every order in which the threads of a launch can synchronise."""
