"""``python -m mltree``, and the ``mltree`` command."""

import gc
import os
import sys

from mltree.system.process import (
    FEW_THREADS,
    STDERR,
    ignore_signals,
    install_handlers,
    limit_drivers,
    tune_malloc,
)
from mltree.system.rank_start import join
from mltree.system.ranks import dismiss

YOUNG_OBJECTS = 200_000
"""Made before Python looks for garbage among them, twice as many as imports make, which stay: its
own 700 had it look through those a dozen times, 4 % of the instructions of a start, and 50,000
once, for 10 ms. Little here is ever part of a cycle."""


def main() -> None:
    """Heed signals before anything that takes time is imported, run, and keep to how it ended."""
    _take_standard_streams()
    try:
        install_handlers()
    except RuntimeError:
        from mltree.cli.exits import EXIT_ERROR, complain

        complain(FEW_THREADS)
        sys.exit(EXIT_ERROR)
    gc.set_threshold(YOUNG_OBJECTS)
    tune_malloc()
    join()
    limit_drivers()
    from mltree.cli.main import main as run

    try:
        run()
    except SystemExit as ending:
        if not ending.code:
            ignore_signals()
        raise
    finally:
        dismiss()
        gc.freeze()  # or Python, at its end, looks for garbage among all that there is: 0.1 s


def _take_standard_streams() -> None:
    """Let no file get the number of a standard stream that is closed, and what is printed there."""
    free = os.open(os.devnull, os.O_RDWR)
    while free <= STDERR:
        free = os.dup(free)
    os.close(free)


if __name__ == "__main__":
    main()
