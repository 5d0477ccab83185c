"""The metrics: their names in Nsight Compute, and how ours relate to a GPU's.

A GPU executes machine instructions (SASS), and a launch here PTX instructions.  The
assembler removes, merges and unrolls calculations.  It keeps accesses of memory,
atomics and Tensor Core instructions.  So a metric is one of two kinds:

- *traffic* has Nsight's name: the same accesses move the same sectors;
- *PTX* counts PTX instructions.  Its name begins with ``ptx__``, so that nobody takes
  it for Nsight's; ``nsight`` is the metric that counts machine instructions.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.isa.table import read

#: ``docs/counters.md`` says of each how it compares with an H200's.
METRICS = """
metric                                                          | nsight                                    | what
ptx__inst_executed.sum                                          | smsp__inst_executed.sum                   | PTX instructions, for each warp
ptx__thread_inst_executed.sum                                   | smsp__thread_inst_executed.sum            | PTX instructions, for each thread
ptx__thread_inst_executed_pred_on.sum                           | smsp__thread_inst_executed_pred_on.sum    | the same, without threads that a guard excludes
ptx__branches.sum                                               | smsp__sass_branch_targets.sum             | branches with a guard, for each warp
ptx__branches_divergent.sum                                     | smsp__sass_branch_targets_threads_divergent.sum | those that threads of a warp leave in both ways
l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum                 | =                                         | loads of global memory by a warp
l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum                  | =                                         | sectors of 32 bytes that these read
l1tex__t_requests_pipe_lsu_mem_global_op_st.sum                 | =                                         | stores to global memory by a warp
l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum                  | =                                         | sectors that these write
l1tex__t_requests_pipe_lsu_mem_global_op_red.sum                | =                                         | atomics without a result
l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum                 | =                                         | sectors of these
l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum               | =                                         | atomics with a result
l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum                | =                                         | sectors of these
l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum             | =                                         | `cp.async` of a warp
l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum              | =                                         | sectors that these read
smsp__inst_executed_op_shared_ld.sum                            | =                                         | loads of shared memory by a warp
smsp__inst_executed_op_shared_st.sum                            | =                                         | stores to shared memory by a warp
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum            | =                                         | passes of loads of shared memory
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum            | =                                         | passes of stores to shared memory
l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum        | =                                         | passes of loads beyond those that they need
l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum        | =                                         | passes of stores beyond those that they need
"""  # noqa: E501


class Metric(NamedTuple):
    """One metric."""

    name: str
    nsight: str
    """The metric of Nsight Compute that it is compared with."""
    what: str

    @property
    def traffic(self) -> bool:
        """Whether it has Nsight's name."""
        return self.name == self.nsight


def _metric(line: dict[str, str]) -> Metric:
    name = line["metric"]
    nsight = name if line["nsight"] == "=" else line["nsight"]
    return Metric(name, nsight, line["what"])


EVERY = {line["metric"]: _metric(line) for line in read(METRICS)}
"""All metrics by name."""
