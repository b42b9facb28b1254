"""Follow README.md literally, in a copy of the project and an empty home folder.

    python tests/packaging/follow_readme.py [python3.12]

The commands of "Install" are run first, then those of its console blocks; the first that fails ends
the script. pip fetches what mltree needs, which takes minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMMAND = re.compile(r"^    (\S.*)$", re.MULTILINE)
BLOCK = re.compile(r"```console\n\$ (.*?)\n", re.DOTALL)


def commands(readme: str) -> list[str]:
    """The commands of a README, in its order: of its section Install, and of its console blocks."""
    install = readme.partition("\n## Install\n")[2].partition("\n## ")[0]
    return [*COMMAND.findall(install), *BLOCK.findall(readme)]


def main(python: str = "python3") -> int:
    """Return the exit code of the first command that fails, else 0."""
    with tempfile.TemporaryDirectory() as name:
        home, copy = Path(name) / "home", Path(name) / "mltree"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        lines = [f"shopt -s expand_aliases; alias python3={python}; set -ex", "cd " + str(copy)]
        script = "\n".join([*lines, *commands((copy / "README.md").read_text(encoding="utf-8"))])
        kept = ("PATH", "LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "TMPDIR")
        given = {name: os.environ[name] for name in kept if name in os.environ}
        environment = {**given, "HOME": str(home)}
        return subprocess.run(["bash", "-c", script], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
