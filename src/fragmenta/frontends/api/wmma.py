"""The builder of ``wmma.mma`` as users have it."""

from __future__ import annotations

from fragmenta.frontends.api.catalogue import wmma_mma as mma

__all__ = ["mma"]
