"""``python -m mltree``, and the ``mltree`` command."""

import os

from mltree.stopping import STDERR, ignore, listen


def main() -> None:
    """Heed signals before anything that takes time is imported, run, and keep to how it ended."""
    _take_standard_streams()
    listen()
    from mltree.cli import main as run

    try:
        run()
    except SystemExit as ending:
        if not ending.code:
            ignore()
        raise


def _take_standard_streams() -> None:
    """Let no file get the number of a standard stream that is closed, and what is printed there."""
    free = os.open(os.devnull, os.O_RDWR)
    while free <= STDERR:
        free = os.dup(free)
    os.close(free)


if __name__ == "__main__":
    main()
