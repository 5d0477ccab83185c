"""The table of CUDA's functions against CUDA's own headers and libraries."""

import re
import subprocess
from pathlib import Path

import pytest

from fragmenta.cuda.tools import compiler, fatbin
from fragmenta.frontends.programs import building, functions
from fragmenta.frontends.programs.cards import cards
from fragmenta.frontends.programs.functions import DRIVER, RUNTIME, refused, rows

HERE = Path(__file__).parent
FORMS = re.compile(r"_pts?[dz][sz]$|_ptds$|_ptsz$")
OLD = {row.name for row in rows(RUNTIME) if row.only == "12"}


def headers():
    found = compiler.includes()
    if not found:
        pytest.skip("no headers of CUDA")
    return found[0]


def declared(name, returns):
    """How many parameters each function of a header has."""
    text = re.sub(
        r"/\*.*?\*/|//[^\n]*", " ", (headers() / name).read_text(), flags=re.S
    )
    found = {}
    pattern = rf"\b{returns}\s+(?:CUDARTAPI|CUDAAPI)?\s*(cu\w+)\s*\(([^;{{]*?)\)\s*;"
    for function, given in re.findall(pattern, text):
        given = re.sub(r"\([^()]*\)", "", given).strip()
        count = 0 if given in ("", "void") else given.count(",") + 1
        found.setdefault(function, set()).add(count)
    return found


def test_every_function_of_the_runtime_is_covered_or_refused():
    """Each name of NVIDIA's own library, so that no program ends with a lost symbol."""
    library = headers().parent / "lib" / "libcudart.so.13"
    if not library.exists():
        pytest.skip("no libcudart.so.13")
    parts = dict(fatbin.sections(library.read_bytes()))
    names = {each.decode() for each in parts[".dynstr"].split(b"\0")}
    names = {each for each in names if re.match(r"(__)?cuda[A-Z]", each)}
    assert len(names) > 400
    known = {row.name for row in rows(RUNTIME)} | set(refused("runtime"))
    assert {n for n in names if FORMS.sub("", n) not in known} == set()


def test_every_function_of_the_driver_is_covered_or_refused():
    """Libraries look up each function that they may use, and give up if one is not."""
    text = (headers() / "cuda.h").read_text()
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    pattern = r"#\s*define\s+(cu\w+)\s+(?:__CUDA_API_PT\w+\()?(cu\w+)"
    forms = dict(re.findall(pattern, plain))
    names = {FORMS.sub("", each) for each in declared("cuda.h", "CUresult")}
    names = {forms.get(each, each) for each in names}
    assert len(names) > 400
    known = {row.name for row in rows(DRIVER)} | set(refused("driver"))
    assert names - known == set()


@pytest.mark.parametrize(
    ("table", "header", "returns"),
    [(RUNTIME, "cuda_runtime_api.h", "cudaError_t"), (DRIVER, "cuda.h", "CUresult")],
    ids=["runtime", "driver"],
)
def test_parameters_are_as_many_as_in_the_header(table, header, returns):
    known = declared(header, returns)
    renamed = re.findall(
        r"#\s*define\s+(cu\w+)\s+(?:__CUDA_API_\w+\()?(cu\w+_v\d)",
        (headers() / header).read_text(),
    )
    known.update({new: known[old] for old, new in renamed if old in known})
    checked = 0
    for row in rows(table):
        if row.name in known and row.only != "12":
            assert len(row.parameters) in known[row.name], row.name
            checked += 1
    assert checked > 120


@pytest.mark.parametrize(
    ("table", "file"),
    [(RUNTIME, "shapes.cu"), (DRIVER, "driver.c")],
    ids=["runtime", "driver"],
)
def test_every_row_is_called_by_a_program(table, file):
    """Those of older CUDAs, and those that nvcc writes into programs, aside."""
    text = (HERE / file).read_text()
    if file == "driver.c":  # without the declarations
        text = text[text.index("static const char *TEXT") :]
    called = set(re.findall(r"\bcu\w+", text))
    written = {row.name for row in rows(table) if row.name.startswith("__")}
    aside = {
        "cudaThreadSynchronize",
        "cudaThreadExit",
        "cudaMemAdvise_v2",
        "cudaMemPrefetchAsync_v2",
        "cudaEventElapsedTime_v2",
        "cudaGetDriverEntryPoint",
    }
    names = {row.name for row in rows(table)} - written - aside - OLD
    assert names - called == set()


def test_what_the_cute_dsl_compiles_finds_its_functions():
    made = building.sources()
    both = made["driver.cpp"] + made["runtime13.cpp"]
    names = functions.CUTE_DSL.split()
    assert len(names) > 40
    assert [each for each in names if f" _{each}(" not in both] == []


def test_no_function_is_both_covered_and_refused():
    for table, library in ((RUNTIME, "runtime"), (DRIVER, "driver")):
        names = [(row.name, row.only) for row in rows(table)]
        assert len(names) == len(set(names))
        assert not {name for name, _ in names} & set(refused(library))


STRUCTS = """
Copy3 cudaMemcpy3DParms
Pitched cudaPitchedPtr
FunctionAttributes cudaFuncAttributes
Attribute cudaLaunchAttribute
Config cudaLaunchConfig_t
DriverConfig CUlaunchConfig
KernelNode cudaKernelNodeParams
MemsetNode cudaMemsetParams
HostNode cudaHostNodeParams
DriverCopy2 CUDA_MEMCPY2D
DriverCopy3 CUDA_MEMCPY3D
Channel cudaChannelFormatDesc
AllocNode cudaMemAllocNodeParams
"""
FIELDS = [
    "name",
    "totalGlobalMem",
    "sharedMemPerBlock",
    "regsPerBlock",
    "warpSize",
    "memPitch",
    "maxThreadsPerBlock",
    "maxThreadsDim",
    "maxGridSize",
    "totalConstMem",
    "major",
    "minor",
    "textureAlignment",
    "texturePitchAlignment",
    "multiProcessorCount",
    "canMapHostMemory",
    "surfaceAlignment",
    "concurrentKernels",
    "ECCEnabled",
    "asyncEngineCount",
    "unifiedAddressing",
    "memoryBusWidth",
    "l2CacheSize",
    "maxThreadsPerMultiProcessor",
    "streamPrioritiesSupported",
    "globalL1CacheSupported",
    "sharedMemPerMultiprocessor",
    "regsPerMultiprocessor",
    "managedMemory",
    "concurrentManagedAccess",
    "computePreemptionSupported",
    "cooperativeLaunch",
    "sharedMemPerBlockOptin",
    "maxBlocksPerMultiProcessor",
    "reservedSharedMemPerBlock",
    "memoryPoolsSupported",
    "clusterLaunch",
]


def test_structs_are_those_of_the_headers(tmp_path):
    """Their sizes, and the places of the properties of a device."""
    checks = [line.split() for line in STRUCTS.strip().splitlines()]
    lines = [
        "#include <cuda.h>\n#include <driver_types.h>\n#include <cstdio>",
        "#include <cstddef>",
        "namespace ours {\n#include <core.h>\n}",
        "int main() {",
        *(
            f'printf("{a} %zu %zu\\n", sizeof(ours::{a}), sizeof({b}));'
            for a, b in checks
        ),
        'printf("properties %zu %zu\\n", sizeof(cudaDeviceProp), sizeof(cudaDeviceProp));',
        *(
            f'printf("{each} %zu 0\\n", offsetof(cudaDeviceProp, {each}));'
            for each in FIELDS
        ),
        "}",
    ]
    (tmp_path / "check.cpp").write_text("\n".join(lines))
    includes = [f"-I{building.CLIENT}", f"-I{headers()}"]
    words = [building.find_compiler(), "-std=c++17", *includes, "check.cpp", "-o", "c"]
    subprocess.run(words, cwd=tmp_path, check=True)
    said = subprocess.run(
        [str(tmp_path / "c")], capture_output=True, text=True, check=True
    ).stdout
    told = {
        line.split()[0]: list(map(int, line.split()[1:])) for line in said.splitlines()
    }
    for ours, _ in checks:
        here, there = told[ours]
        # CUDA 13.4 has more attributes of functions, at the end.
        assert here == there or (ours == "FunctionAttributes" and here < there), ours
    card = cards()["h100"]
    made, known = card.properties(13), card.attributes()
    assert len(made) == told["properties"][0]
    for field, number in {
        "multiProcessorCount": 16,
        "warpSize": 10,
        "l2CacheSize": 38,
        "maxThreadsPerMultiProcessor": 39,
        "surfaceAlignment": 30,
        "cooperativeLaunch": 95,
        "sharedMemPerBlockOptin": 97,
        "maxBlocksPerMultiProcessor": 106,
        "reservedSharedMemPerBlock": 111,
        "memoryPoolsSupported": 115,
        "clusterLaunch": 120,
        "major": 75,
    }.items():
        at = told[field][0]
        assert int.from_bytes(made[at : at + 4], "little") == known[number], field


def test_errors_have_the_numbers_of_the_headers():
    text = (headers() / "driver_types.h").read_text()
    known = dict(re.findall(r"(cuda(?:Success|Error)\w*)\s*=\s*(\d+)", text))
    for number, runtime, _, words in functions.errors():
        assert int(known[runtime]) == number, runtime
        assert words
