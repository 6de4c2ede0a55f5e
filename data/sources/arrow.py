"""pyarrow, to which a file is data alone: of itself it runs the code that a Parquet file may hold (CVE-2023-47248)."""

from __future__ import annotations

import pyarrow as pa

# It takes away the type whose values are pickles.
import pyarrow_hotfix  # noqa: F401
from pyarrow import csv, parquet

__all__ = ["csv", "pa", "parquet"]
