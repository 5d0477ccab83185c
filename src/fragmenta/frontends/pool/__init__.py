"""Launches kernels in processes that stay warm.

pool          Pool: what users see
job           a launch that a pool carries out: a future
manager       the thread of a pool: hands out jobs, ends workers, replaces them
forkserver    the process that workers are forked from
worker        what a worker does
confining     limits that the system keeps for a worker
packing       arguments of a launch as bytes, and back
questions     what a pool asks a worker
answers       results and errors as JSON, and back
frames        messages between a pool and its workers
orders        what a pool and its fork server say to one another
"""
