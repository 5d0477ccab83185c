"""Source out, real GPU in: emit, assemble, launch, verify, record."""
