"""Hostile calls, each judged by an answer found in another way.

One module for each surface; :mod:`fuzz.engine` says how calls are made and
counted.  ``make fuzz`` runs millions, ``make test`` a few thousand of each.
"""
