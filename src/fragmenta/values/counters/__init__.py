"""Counts what a launch does, with the names of Nsight Compute.

    code      the instrument: what compiled code counts
    tally     the memory in which a launch counts, and the sums
    metrics   the metrics: their names, and how each relates to a GPU's
    products  products of Tensor Core instructions, by unit
    report    the counts of a launch, occupancy, and a bound of its time

A launch that is not counted loads none of this.
"""
