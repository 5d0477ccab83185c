"""Cards: what a program is told about the device that it runs on.

A program asks for attributes of the device by number, or for all properties in one
struct.  Both follow from the table of cards and from what all cards have in common.
"""

from __future__ import annotations

import struct
from functools import cache

from fragmenta.frontends.programs.verbs import ATTRIBUTES
from fragmenta.launch.limits import machine_memory
from fragmenta.reference import cards as table
from fragmenta.reference.isa.table import read

USUAL = "h100"

#: Attributes by CUDA's number: a number, or a field of the card.
_ATTRIBUTES = """
number | value
1      | 1024
2      | 1024
3      | 1024
4      | 64
5      | 2147483647
6      | 65535
7      | 65535
8      | 49152
9      | 65536
10     | 32
11     | 2147483647
12     | 65536
13     | clock_khz
14     | 512
15     | 1
16     | processors
19     | 1
30     | 512
31     | 1
32     | 1
36     | memory_khz
37     | bus
38     | l2_bytes
39     | threads
40     | 3
41     | 1
51     | 32
75     | major
76     | minor
78     | 1
79     | 1
80     | 1
81     | shared_bytes
82     | 65536
83     | 1
87     | 2
89     | 1
90     | 1
95     | 1
97     | optin
106    | blocks
108    | persisting
109    | window
111    | reserved
115    | 1
120    | clusters
127    | tensor_maps
"""

#: The struct of properties: type, name and what fills it; a number, an attribute such
#: as ``#16``, or nothing.  ``12:`` is in the struct of CUDA 12 only.
_PROPERTIES = """
256s name card | 16s uuid | 8s luid | I luidDeviceNodeMask
Q totalGlobalMem memory | Q sharedMemPerBlock #8 | i regsPerBlock #12
i warpSize #10 | Q memPitch #11 | i maxThreadsPerBlock #1
i x #2 | i y #3 | i z #4 | i x #5 | i y #6 | i z #7
12: i clockRate #13 | Q totalConstMem #9 | i major #75 | i minor #76
Q textureAlignment #14 | Q texturePitchAlignment #51 | 12: i deviceOverlap #15
i multiProcessorCount #16 | 12: i kernelExecTimeoutEnabled | i integrated
i canMapHostMemory #19 | 12: i computeMode | i maxTexture1D
i maxTexture1DMipmap | 12: i maxTexture1DLinear | 36s textures | 112s more
Q surfaceAlignment #30 | i concurrentKernels #31 | i ECCEnabled #32
i pciBusID | i pciDeviceID | i pciDomainID | i tccDriver
i asyncEngineCount #40 | i unifiedAddressing #41 | 12: i memoryClockRate #36
i memoryBusWidth #37 | i l2CacheSize #38 | i persistingL2CacheMaxSize #108
i maxThreadsPerMultiProcessor #39 | i streamPrioritiesSupported #78
i globalL1CacheSupported #79 | i localL1CacheSupported #80
Q sharedMemPerMultiprocessor #81 | i regsPerMultiprocessor #82
i managedMemory #83 | i isMultiGpuBoard | i multiGpuBoardGroupID
i hostNativeAtomicSupported | 12: i singleToDoublePrecisionPerfRatio #87
i pageableMemoryAccess | i concurrentManagedAccess #89
i computePreemptionSupported #90 | i canUseHostPointerForRegisteredMem
i cooperativeLaunch #95 | 12: i cooperativeMultiDeviceLaunch
Q sharedMemPerBlockOptin #97 | i pageableMemoryAccessUsesHostPageTables
i directManagedMemAccessFromHost | i maxBlocksPerMultiProcessor #106
i accessPolicyMaxWindowSize #109 | Q reservedSharedMemPerBlock #111
i hostRegisterSupported | i sparseCudaArraySupported
i hostRegisterReadOnlySupported | i timelineSemaphoreInteropSupported
i memoryPoolsSupported #115 | i gpuDirectRDMASupported
I gpuDirectRDMAFlushWritesOptions | i gpuDirectRDMAWritesOrdering
I memoryPoolSupportedHandleTypes | i deferredMappingCudaArraySupported
i ipcEventSupported | i clusterLaunch #120 | i unifiedFunctionPointers
"""
_SIZES = {12: 1032, 13: 1008}


class ProgramCard(table.Card):
    """A card, as programs see it."""

    @property
    def capacity(self) -> int:
        """Its memory in bytes: at most half of what this machine has."""
        here = machine_memory()
        most = self.memory << 30
        return most if here is None else min(most, here // 2)

    def attributes(self) -> list[int]:
        """All attributes by number; 0 for what it has not."""
        # Of the L2 cache, what can be set aside for data that stays.
        eighths = 0 if self.number < 80 else 6 if self.number < 90 else 5
        fields = {
            "clock_khz": self.clock * 1000,
            "memory_khz": self.memory_clock * 1000,
            "l2_bytes": self.l2 << 20,
            "shared_bytes": self.shared << 10,
            "optin": (self.shared << 10) - self.reserved,
            "persisting": (self.l2 << 20) * eighths // 8,
            "window": 128 << 20 if self.number >= 80 else 0,
            "major": self.number // 10,
            "minor": self.number % 10,
            "clusters": int(self.number >= 90),
            "tensor_maps": int(self.number >= 90),
        }
        found = [0] * ATTRIBUTES
        for row in read(_ATTRIBUTES):
            value = row["value"]
            if value in fields:
                number = fields[value]
            else:
                number = int(value) if value.isdecimal() else getattr(self, value)
            found[int(row["number"])] = number
        return found

    def properties(self, version: int) -> bytes:
        """The struct of properties of CUDA 12 or 13."""
        words, values = "", list[object]()
        known = self.attributes()
        for cell in _PROPERTIES.replace("\n", " | ").split("|"):
            text = cell.strip()
            if not text or (text.startswith("12:") and version != 12):
                continue
            kind, _, *fill = text.removeprefix("12:").split()
            words += kind
            value: object = b"" if kind.endswith("s") else 0
            if fill:
                chosen = {"card": self.name.encode(), "memory": self.capacity}
                number = fill[0][1:]
                value = known[int(number)] if number.isdecimal() else chosen[fill[0]]
            values.append(value)
        return struct.pack(f"@{words}", *values).ljust(_SIZES[version], b"\0")


@cache
def cards() -> dict[str, ProgramCard]:
    """All cards by the name that ``--card`` takes.

    >>> cards()["h100"].target
    'sm_90a'
    """
    return {name: ProgramCard(**vars(each)) for name, each in table.cards().items()}


def card(name: str) -> ProgramCard:
    """A card by name.

    >>> card("H200").processors
    132
    """
    return cards()[table.card(name).card]
