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

from fragmenta.reference.isa.table import read

#: ``docs/counters.md`` says of each how it compares with an H200's.
METRICS = """
metric                                                              | nsight                                          | what
ptx__inst_executed.sum                                              | smsp__inst_executed.sum                         | PTX instructions, for each warp
ptx__thread_inst_executed.sum                                       | smsp__thread_inst_executed.sum                  | PTX instructions, for each thread
ptx__thread_inst_executed_pred_on.sum                               | smsp__thread_inst_executed_pred_on.sum          | the same, without threads that a guard excludes
ptx__branches.sum                                                   | smsp__sass_branch_targets.sum                   | branches, for each warp
ptx__branches_divergent.sum                                         | smsp__sass_branch_targets_threads_divergent.sum | branches that threads of a warp leave in both ways
l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum                     | =                                               | loads of global memory and `cp.async`, for each warp
l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum                      | =                                               | sectors of 32 bytes that these read
l1tex__t_requests_pipe_lsu_mem_global_op_st.sum                     | =                                               | stores to global memory, for each warp
l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum                      | =                                               | sectors that these write
l1tex__t_requests_pipe_lsu_mem_global_op_red.sum                    | =                                               | atomics without a result, for each warp
l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum                     | =                                               | sectors of these; again for each lane of one address
l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum                   | =                                               | atomics with a result, for each warp
l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum                    | =                                               | sectors of these; again for each lane of one address
smsp__inst_executed_op_ldgsts.sum                                   | =                                               | `cp.async`, for each warp
smsp__inst_executed_op_ldsm.sum                                     | =                                               | `ldmatrix`, for each warp
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum                | =                                               | passes of loads of shared memory
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum                | =                                               | passes of stores to shared memory
l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum            | =                                               | passes of loads beyond those that they need
l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum            | =                                               | passes of stores beyond those that they need
sm__ops_path_tensor_src_fp64.sum                                    | =                                               | operations of Tensor Cores on f64: two for each product
sm__ops_path_tensor_src_tf32_dst_fp32.sum                           | =                                               | the same on tf32
sm__ops_path_tensor_src_bf16_dst_fp32.sum                           | =                                               | the same on bf16
sm__ops_path_tensor_src_fp16.sum                                    | =                                               | the same on f16
sm__ops_path_tensor_src_fp8.sum                                     | =                                               | the same on e4m3 and e5m2
sm__ops_path_tensor_src_int8.sum                                    | =                                               | the same on s8 and u8
sm__ops_path_tensor_src_int1.sum                                    | =                                               | the same on b1
l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum             | =                                               | bytes that bulk copies read: whole boxes
l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum            | =                                               | bytes that bulk copies write: whole boxes
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
