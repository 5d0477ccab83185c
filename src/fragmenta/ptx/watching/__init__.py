"""What is unordered, early, or left over while a kernel runs?

Watch              what is known about one cluster: clocks, accesses, problems
watched(access)    the routine that checks a load or a store of shared memory
"""
