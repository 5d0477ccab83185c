"""The optimisations of ptxas that change results: products fused with sums, constants.

A kernel computes what the assembler makes of its text.  These modules rewrite a
function in the same way, so that it gives the same bits.
"""
