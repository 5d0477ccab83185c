"""Watches a launch for what another run could do.

races   the race detector: clocks, shadow memory, reports
orders  all orders of a launch, explored from the events of one
"""
