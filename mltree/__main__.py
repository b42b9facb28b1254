"""``python -m mltree``, and the ``mltree`` command."""

from mltree.stopping import listen


def main() -> None:
    """Heed signals before anything that takes time is imported, and run."""
    listen()
    from mltree.cli import main as run

    run()


if __name__ == "__main__":
    main()
