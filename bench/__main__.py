"""``python -m bench``: the benchmarks' command line."""

from __future__ import annotations

import warnings

from bench.commands import main

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
