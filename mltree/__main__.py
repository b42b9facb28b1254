"""``python -m mltree``."""

from mltree.cli import main

if __name__ == "__main__":
    main()
