"""What every test and doctest shares."""

import os
import tempfile
from importlib.util import find_spec

# Compiled kernels of the tests stay out of the user's own cache.
os.environ.setdefault("FRAGMENTA_CACHE", tempfile.mkdtemp(prefix="fragmenta-"))

# PyTorch is no dependency of the tests; what needs it is not imported without.
needs_torch = ["src/fragmenta/torch", "tests/golden/make_exchange.py"]
collect_ignore = [] if find_spec("torch") else needs_torch
