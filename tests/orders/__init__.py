"""Tests of the room ``orders``."""
