"""What all tests need."""

import os

# No picture is shown.
os.environ.setdefault("MPLBACKEND", "agg")
