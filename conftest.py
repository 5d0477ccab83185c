"""What every test and doctest shares."""

import os
import tempfile

# Compiled kernels of the tests stay out of the user's own cache.
os.environ.setdefault("FRAGMENTA_CACHE", tempfile.mkdtemp(prefix="fragmenta-"))
