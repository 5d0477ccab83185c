"""Weights stored so that a lane loads them with wide loads."""
