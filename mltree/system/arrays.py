"""Names of NumPy arrays in annotations; docstrings give shapes, as in ``f64[taxa, sites]``."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bool: TypeAlias = NDArray[np.bool_]
Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
UInt64: TypeAlias = NDArray[np.uint64]
