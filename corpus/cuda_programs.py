"""Runs programs of others with ``fragmenta run``, and notes what came of each.

    git clone https://github.com/NVIDIA/cuda-samples FOLDER/cuda-samples
    python -m corpus.cuda_programs FOLDER [NAME ...] [--keep]

``PROJECTS`` says where the programs come from; each is cloned into a folder of its name.
A row is a program: its folder, its sources, its arguments, and further flags for nvcc.
With ``--keep``, the results are written to docs/programs.json, of which docs/programs.md
has a table.  Nothing of the programs is in this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fragmenta.cuda.tools import assembler

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "programs.json"

#: The folder, the sources, and arguments or flags: ``-- arguments``, then ``++ flags``.
PROGRAMS = """
cuda-samples/Samples/0_Introduction/vectorAdd | vectorAdd.cu |
cuda-samples/Samples/0_Introduction/asyncAPI | asyncAPI.cu |
cuda-samples/Samples/0_Introduction/clock | clock.cu |
cuda-samples/Samples/0_Introduction/fp16ScalarProduct | fp16ScalarProduct.cu |
cuda-samples/Samples/0_Introduction/matrixMul | matrixMul.cu | -wA=32 -hA=32 -wB=32 -hB=32
cuda-samples/Samples/0_Introduction/mergeSort | main.cpp mergeSort.cu bitonic.cu mergeSort_host.cpp mergeSort_validate.cpp |
cuda-samples/Samples/0_Introduction/simpleAWBarrier | simpleAWBarrier.cu |
cuda-samples/Samples/0_Introduction/simpleAssert | simpleAssert.cu |
cuda-samples/Samples/0_Introduction/simpleAtomicIntrinsics | simpleAtomicIntrinsics.cu simpleAtomicIntrinsics_cpu.cpp |
cuda-samples/Samples/0_Introduction/simpleAttributes | simpleAttributes.cu |
cuda-samples/Samples/0_Introduction/simpleCallback | simpleCallback.cu multithreading.cpp |
cuda-samples/Samples/0_Introduction/simpleCooperativeGroups | simpleCooperativeGroups.cu |
cuda-samples/Samples/0_Introduction/simpleHyperQ | simpleHyperQ.cu |
cuda-samples/Samples/0_Introduction/simpleMultiCopy | simpleMultiCopy.cu |
cuda-samples/Samples/0_Introduction/simpleMultiGPU | simpleMultiGPU.cu |
cuda-samples/Samples/0_Introduction/simpleOccupancy | simpleOccupancy.cu |
cuda-samples/Samples/0_Introduction/simplePrintf | simplePrintf.cu |
cuda-samples/Samples/0_Introduction/simpleTemplates | simpleTemplates.cu |
cuda-samples/Samples/0_Introduction/simpleTexture | simpleTexture.cu |
cuda-samples/Samples/0_Introduction/simpleVoteIntrinsics | simpleVoteIntrinsics.cu |
cuda-samples/Samples/0_Introduction/simpleZeroCopy | simpleZeroCopy.cu |
cuda-samples/Samples/0_Introduction/systemWideAtomics | systemWideAtomics.cu |
cuda-samples/Samples/0_Introduction/template | template.cu template_cpu.cpp |
cuda-samples/Samples/1_Utilities/deviceQuery | deviceQuery.cpp | ++ -x cu
cuda-samples/Samples/2_Concepts_and_Techniques/inlinePTX | inlinePTX.cu |
cuda-samples/Samples/2_Concepts_and_Techniques/shfl_scan | shfl_scan.cu |
cuda-samples/Samples/2_Concepts_and_Techniques/scalarProd | scalarProd.cu scalarProd_cpu.cpp |
cuda-samples/Samples/2_Concepts_and_Techniques/reduction | reduction.cpp reduction_kernel.cu | --n=65536
cuda-samples/Samples/2_Concepts_and_Techniques/reductionMultiBlockCG | reductionMultiBlockCG.cu | --n=65536
cuda-samples/Samples/2_Concepts_and_Techniques/threadFenceReduction | threadFenceReduction.cu | --n=65536
cuda-samples/Samples/2_Concepts_and_Techniques/streamOrderedAllocation | streamOrderedAllocation.cu |
cuda-samples/Samples/2_Concepts_and_Techniques/sortingNetworks | main.cpp bitonicSort.cu oddEvenMergeSort.cu sortingNetworks_validate.cpp |
cuda-samples/Samples/2_Concepts_and_Techniques/radixSortThrust | radixSortThrust.cu | -n=16384
cuda-samples/Samples/3_CUDA_Features/StreamPriorities | StreamPriorities.cu |
cuda-samples/Samples/3_CUDA_Features/binaryPartitionCG | binaryPartitionCG.cu |
cuda-samples/Samples/3_CUDA_Features/simpleCudaGraphs | simpleCudaGraphs.cu |
cuda-samples/Samples/3_CUDA_Features/graphMemoryNodes | graphMemoryNodes.cu |
cuda-samples/Samples/3_CUDA_Features/graphMemoryFootprint | graphMemoryFootprint.cu |
cuda-samples/Samples/3_CUDA_Features/globalToShmemAsyncCopy | globalToShmemAsyncCopy.cu | -wA=64 -hA=64 -wB=64 -hB=64
cuda-samples/Samples/3_CUDA_Features/warpAggregatedAtomicsCG | warpAggregatedAtomicsCG.cu |
cuda-samples/Samples/3_CUDA_Features/jacobiCudaGraphs | main.cpp jacobi.cu |
cuda-samples/Samples/3_CUDA_Features/newdelete | newdelete.cu |
cuda-samples/Samples/3_CUDA_Features/cdpSimplePrint | cdpSimplePrint.cu | ++ -rdc=true
cuda-samples/Samples/5_Domain_Specific/fastWalshTransform | fastWalshTransform.cu fastWalshTransform_gold.cpp |
cuda-samples/Samples/5_Domain_Specific/SobolQRNG | sobol.cpp sobol_gold.cpp sobol_gpu.cu sobol_primitives.cpp | -n_vectors=1000 -n_dimensions=16
cuda-samples/Samples/5_Domain_Specific/binomialOptions | binomialOptions.cpp binomialOptions_gold.cpp binomialOptions_kernel.cu |
cuda-samples/Samples/5_Domain_Specific/dwtHaar1D | dwtHaar1D.cu |
cuda-samples/Samples/6_Performance/transpose | transpose.cu | -dimX=64 -dimY=64
cuda-samples/Samples/6_Performance/alignedTypes | alignedTypes.cu |
cuda-samples/Samples/6_Performance/LargeKernelParameter | LargeKernelParameter.cu |
cutlass/examples/00_basic_gemm | basic_gemm.cu | 96 64 32
cutlass/examples/01_cutlass_utilities | cutlass_utilities.cu |
cutlass/examples/04_tile_iterator | tile_iterator.cu |
cutlass/examples/05_batched_gemm | batched_gemm.cu |
cutlass/examples/14_ampere_tf32_tensorop_gemm | ampere_tf32_tensorop_gemm.cu | --m=128 --n=128 --k=64 --iterations=1
cutlass/examples/15_ampere_sparse_tensorop_gemm | ampere_sparse_tensorop_gemm.cu |
cutlass/examples/16_ampere_tensorop_conv2dfprop | ampere_tensorop_conv2dfprop.cu | --n=1 --h=16 --w=16 --c=32 --k=32 --r=3 --s=3 --iterations=1 --ref-check
cutlass/examples/23_ampere_gemm_operand_reduction_fusion | ampere_gemm_operand_reduction_fusion.cu | --m=128 --n=128 --k=64 --iterations=1 --reference-check
cutlass/examples/35_gemm_softmax | gemm_softmax.cu | --m=64 --n=48 --k=64 --batch_count=2 --iterations=1
cutlass/examples/47_ampere_gemm_universal_streamk | ampere_gemm_universal_streamk.cu | --m=256 --n=128 --k=128 --iterations=1
cutlass/examples/48_hopper_warp_specialized_gemm | 48_hopper_warp_specialized_gemm.cu | --m=256 --n=128 --k=128 --iterations=0
cutlass/examples/54_hopper_fp8_warp_specialized_gemm | 54_hopper_fp8_warp_specialized_gemm.cu | --m=256 --n=128 --k=128 --iterations=0
cutlass/examples/62_hopper_sparse_gemm | 62_hopper_sparse_gemm.cu | --m=256 --n=128 --k=256 --iterations=0
cutlass/examples/cute/tutorial | sgemm_1.cu | 128 128 32
cutlass/examples/cute/tutorial | sgemm_sm80.cu | 128 128 64 T N
cutlass/examples/cute/tutorial | tiled_copy.cu |
cutlass/examples/cute/tutorial/hopper | wgmma_sm90.cu | 128 128 256
cutlass/examples/cute/tutorial/hopper | wgmma_tma_sm90.cu | 256 128 256
cutlass/test/unit/core | functional.cu array.cu predicate_vector.cu | ++ unit-test
cutlass/test/unit/cute/ampere | ldsm.cu cp_sync.cu | ++ unit-test
cutlass/test/unit/cute/hopper | stsm.cu bulk_load.cu bulk_store.cu | ++ unit-test
cutlass/test/unit/gemm/thread | gemm_sm60.cu | ++ unit-test
cccl/cub/examples/device | example_device_radix_sort_custom.cu |
cccl/cub/examples/device | example_device_decoupled_look_back.cu |
fragmenta/tests/programs | cub.cu | ++ cub
cccl/thrust/examples | saxpy.cu |
cccl/thrust/examples | histogram.cu |
cccl/thrust/examples | sort.cu |
cccl/thrust/examples | scan_by_key.cu |
cccl/thrust/examples | norm.cu |
cccl/thrust/examples | set_operations.cu |
cccl/thrust/examples | run_length_encoding.cu |
llm.c/dev/cuda | gelu_forward.cu | 1
llm.c/dev/cuda | gelu_forward.cu | 2
llm.c/dev/cuda | gelu_backward.cu | 1
llm.c/dev/cuda | gelu_backward.cu | 2
llm.c/dev/cuda | residual_forward.cu | 1
llm.c/dev/cuda | residual_forward.cu | 2
llm.c/dev/cuda | adamw.cu | 1
llm.c/dev/cuda | adamw.cu | 2
llm.c/dev/cuda | encoder_forward.cu | 1
llm.c/dev/cuda | encoder_forward.cu | 3
llm.c/dev/cuda | fused_residual_forward.cu | 4
llm.c/dev/cuda | layernorm_forward.cu | 3
llm.c/dev/cuda | layernorm_forward.cu | 5
llm.c/dev/cuda | permute.cu |
"""
SECONDS = 300
FLAGS = ["-std=c++17", "-w", "--expt-relaxed-constexpr"]
SEVERAL = ("tutorial", "hopper", "cuda", "examples", "device", "programs")
"""Folders with several programs, which are called by their sources."""
FAILED = re.compile(r"Test failed|TEST FAILED|FAILED|Result = FAIL|[Mm]ismatch")
STAND_INS = Path(__file__).with_name("stand_ins")
"""Headers for libraries that a program sets up, and does not use."""


UNIT_TEST = "unit-test"
"""A flag of programs that need googletest."""
CUB = " ".join(f"-I{{place}}/cccl/{each}" for each in ("thrust", "cub"))
CUB += " -I{place}/cccl/libcudacxx/include"
STANDS_FOR = {
    "cub": CUB,
    # As the project builds them: without assertions.
    UNIT_TEST: f"{CUB} -DNDEBUG "
    "-I{place}/googletest/googletest/include -I{place}/googletest/googletest "
    "{place}/cutlass/test/unit/test_unit.cpp "
    "{place}/cutlass/test/unit/common/filter_architecture.cpp "
    "{place}/googletest/googletest/src/gtest-all.cc",
}
"""Flags of rows, and what nvcc gets for them."""


class Project(NamedTuple):
    """Where programs come from, and what all of them are built with."""

    home: str
    commit: str
    headers: tuple[str, ...] = ()
    flags: str = ""
    until: str = ""
    """What a program says when its checks are done and it begins to measure the time,
    with thousands of launches.  It is then interrupted."""


OURS = "fragmenta"
"""Programs of our own."""
PROJECTS = {
    "cuda-samples": Project("NVIDIA/cuda-samples", "c94ff366", ("Common",)),
    "cutlass": Project(
        "NVIDIA/cutlass",
        "7107b0553",
        ("include", "tools/util/include", "examples/common", "test/unit/common"),
    ),
    "cccl": Project(
        "NVIDIA/cccl",
        "571f2fc3bc",
        ("cub", "thrust", "libcudacxx/include", "c2h/include"),
        "--extended-lambda",
    ),
    "llm.c": Project(
        "karpathy/llm.c",
        "f1e2ace",
        flags=f"-O3 --use_fast_math -I{STAND_INS}",
        until="All results match.",
    ),
    "googletest": Project("google/googletest", "72606823"),
    OURS: Project("", ""),
}


class Row(NamedTuple):
    """A program of others."""

    folder: str
    sources: list[str]
    arguments: list[str]
    flags: list[str]

    @property
    def name(self) -> str:
        """What it is called."""
        *_, leaf = self.folder.split("/")
        stem = self.sources[0].partition(".")[0]
        if leaf == "cuda":  # of one program, several kernels
            stem = "-".join([stem, *self.arguments])
        if UNIT_TEST in self.flags:
            stem = leaf = "-".join(["test", leaf, *(f[:-3] for f in self.sources)])
        return f"{self.project}/{stem if leaf in SEVERAL else leaf}"

    @property
    def project(self) -> str:
        """The folder that the programs of its project are in."""
        return self.folder.partition("/")[0]

    def at(self, place: Path) -> Path:
        """Its folder."""
        if self.project == OURS:
            return ROOT / self.folder.partition("/")[2]
        return place / self.folder

    def words(self, place: Path) -> list[str]:
        """The flags for nvcc."""
        project = PROJECTS[self.project]
        root = place / self.project
        headers = [f"-I{root / each}" for each in project.headers]
        own = [STANDS_FOR.get(each, each) for each in self.flags]
        words = " ".join([*FLAGS, *headers, project.flags, *own])
        return words.format(place=place).split()


def rows() -> list[Row]:
    """All programs."""
    found = []
    for line in PROGRAMS.strip().splitlines():
        folder, sources, more = (part.strip() for part in line.split("|"))
        arguments, _, flags = more.partition("++")
        found.append(Row(folder, sources.split(), arguments.split(), flags.split()))
    return found


def run(row: Row, place: Path, given: list[str]) -> dict[str, object]:
    """Run a program; what came of it."""
    folder = row.at(place)
    first, *rest = row.sources
    source = first
    if not first.endswith(".cu"):  # a .cu file of the same text, beside it
        source = f"{first}.main.cu"
        (folder / source).write_text(f'#include "{first}"\n')
    flags = [*row.words(place), *given, *rest]
    words = [sys.executable, "-m", "fragmenta", "run", "--json"]
    words += ["--flags", " ".join(flags), source, *row.arguments]
    try:
        output, said, measuring = _listen(words, folder, PROJECTS[row.project].until)
    except TimeoutError:
        return _result(row, "too long", 0, f"more than {SECONDS} seconds")
    finally:
        if source != first:
            (folder / source).unlink()
    try:
        told = json.loads(output)
    except ValueError:
        lines = [line for line in said.splitlines() if "rror" in line]
        return _result(row, "not built", 0, (lines or [said[-120:]])[-1])
    if measuring:
        told["status"], told["crashes"] = 0, []
    return _judged(row, told, said, measuring)


def _listen(words: list[str], folder: Path, until: str) -> tuple[str, str, bool]:
    """What a command prints, what it says, and whether it was interrupted.

    What it says goes to a terminal, so that each line comes when it is said.
    """
    ours, theirs = os.openpty()
    end = time.monotonic() + SECONDS
    said, interrupted = b"", False
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            words,
            cwd=folder,
            stdout=output,
            stderr=theirs,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FRAGMENTA_PATIENCE": "never"},
        ) as process,
    ):
        os.close(theirs)
        try:
            while (part := _heard(ours, end)) is not None:
                said += part
                if until and not interrupted and until.encode() in said:
                    interrupted = True
                    process.send_signal(signal.SIGINT)
            process.wait(max(end - time.monotonic(), 1))
        finally:
            process.kill()
            os.close(ours)
        output.seek(0)
        printed = output.read().decode(errors="replace")
    return printed, said.decode(errors="replace"), interrupted


def _heard(terminal: int, end: float) -> bytes | None:
    """What comes next from a terminal; None if nobody holds its other end."""
    ready, _, _ = select.select([terminal], [], [], max(end - time.monotonic(), 0))
    if not ready:
        raise TimeoutError
    try:
        return os.read(terminal, 1 << 16) or None
    except OSError:  # EIO: all of them have closed it
        return None


def _judged(
    row: Row, told: dict[str, list], said: str, measuring: bool
) -> dict[str, object]:
    launches = told["launches"]
    found = sorted(
        {p["rule"] for each in launches for p in each["problems"] if _counts(p)}
    )
    faults = [each["fault"].splitlines()[0] for each in launches if each["fault"]]
    words = [*told["crashes"], *faults, *told["refused"], *found]
    if measuring:
        words.append("ended after its checks, before its timing")
    right = told["status"] == 0 and not FAILED.search(said)
    result = "right" if right else "wrong"
    if told["refused"] or faults or "unsupported" in found:
        result = "refused" if result == "wrong" else result
    return _result(row, result, len(launches), "; ".join(dict.fromkeys(words))[:200])


def _counts(problem: dict[str, object]) -> bool:
    return problem["severity"] in ("error", "warning")


def _result(row: Row, result: str, launches: int, said: str) -> dict[str, object]:
    text = " ".join(said.split()).replace("|", "/")
    return {
        "program": row.name,
        "result": result,
        "launches": launches,
        "said": text,
        "date": date.today().isoformat(),
    }


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--flag", action="append", default=[])
    asked = parser.parse_args()
    # Shells let jobs in the background ignore Ctrl-C; the programs must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = json.loads(RESULTS.read_text())["programs"] if RESULTS.exists() else []
    known = {each["program"]: each for each in kept}
    for row in rows():
        short = row.name.split("/")[-1]
        if asked.names and short not in asked.names:
            continue
        if not row.at(asked.folder).is_dir():
            continue
        made = run(row, asked.folder.resolve(), asked.flag)
        print(
            f"{made['result']:10} {made['launches']:4} {short:28} {made['said'][:90]}",
            flush=True,
        )
        if asked.keep:
            known[row.name] = made
            order = [each.name for each in rows()]
            listed = sorted(known.values(), key=lambda e: order.index(e["program"]))
            sources = {p.home: p.commit for p in PROJECTS.values() if p.home}
            whole = {"sources": sources, "nvcc": _nvcc(), "programs": listed}
            RESULTS.write_text(json.dumps(whole, indent=1) + "\n")


def _nvcc() -> str:
    """The version of the compiler."""
    words = [str(assembler.tool("nvcc")), "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"release \S+ V(\S+)", said)
    return found[1] if found else ""


if __name__ == "__main__":
    main()
