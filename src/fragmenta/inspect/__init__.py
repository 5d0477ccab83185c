"""Looks at launches, and at what hardware said of them.

replay     every step of a launch, forwards and backwards
debugging  a debugger for recorded launches
view       pictures and pages
sameness   whether two launches leave the same bits, for all inputs
evidence   the answers of a GPU: recorded, compared, tested
"""
