"""Expressions behind the values of a launch, as hashes of 128 bits.

Beside each value goes a hash of the expression that made it: the operation, its
rounding, its operands.  Two values with the same hash have the same bits for all inputs
that take the same path.

- :mod:`.hashing`    the algebra: hashes of inputs, constants, operations, sums
- :mod:`.steps`      how the model of a Tensor Core instruction is an expression
"""
