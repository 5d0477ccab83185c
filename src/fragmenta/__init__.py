"""The executable reference for NVIDIA Tensor Core instructions."""

from fragmenta.isa.parse import instruction, mma, wgmma
