"""Litmus tests of the memory model: tiny programs, and the verdict on each."""
