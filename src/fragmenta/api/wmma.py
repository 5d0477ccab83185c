"""The builder of ``wmma.mma`` as users have it."""

from __future__ import annotations

from fragmenta.api.catalogue import wmma_mma as mma

__all__ = ["mma"]
