"""Counts of the house: ``make house`` prints them, ``tests/house/test_budget.py`` holds them down.

python tests/budget.py                  this checkout
python tests/budget.py v0.1.0..HEAD     how two commits differ
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

RIDDLE = re.compile(r"(What|Whether|Of)\b")
"""How a docstring begins that has no subject."""

ARRAY_ALIAS = re.compile(r"(\w+\.)?NDArray\[np\.\w+\]")

FEW_WORDS = 3

LONG_LIST = 8
"""Names that two lists must share in order to be one list written twice."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Module(NamedTuple):
    """A Python file of the package."""

    name: str
    """``mltree.data.patterns``."""
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        """The package that it lies in; ``mltree`` for a loose one."""
        return self.name.rpartition(".")[0] or self.name

    def imported(self) -> Iterator[str]:
        """Names of modules, and of what may be modules, that are imported anywhere in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def definitions(self) -> Iterator[Definition]:
        """Functions and classes, inner ones too."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        yield from (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def docstrings(self) -> Iterator[str]:
        """Docstrings of the module, its functions and classes."""
        for node in (self.tree, *self.definitions()):
            if text := ast.get_docstring(node):
                yield text

    def described(self) -> Iterator[str]:
        """Every string that stands by itself: docstrings, of attributes and constants too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield str(node.value.value)


def modules_of(root: Path) -> list[Module]:
    """The modules of the package under the root of a checkout, packages' own files left out."""
    found = []
    for path in sorted((root / "mltree").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, ast.parse(text), text.count("\n")))
    return found


def arrows_of(modules: list[Module]) -> dict[str, set[str]]:
    """By module: which modules it imports."""
    names = {module.name for module in modules}
    return {
        module.name: {name for name in module.imported() if name in names} - {module.name, "mltree"}
        for module in modules
    }


def circle_in(arrows: dict[str, set[str]]) -> list[str] | None:
    """A circle of imports; None where there is none."""
    try:
        tuple(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        return list(error.args[1])
    return None


def circles_of(arrows: dict[str, set[str]]) -> int:
    """Number of circles of imports, each broken where it is found."""
    arrows = {name: set(others) for name, others in arrows.items()}
    count = 0
    while circle := circle_in(arrows):
        arrows[circle[1]].discard(circle[0])
        count += 1
    return count


def lonely_of(modules: list[Module], arrows: dict[str, set[str]]) -> int:
    """Modules whose only importer stands beside them."""
    rooms = {module.name: module.room for module in modules}
    importers: dict[str, list[str]] = {name: [] for name in arrows}
    for name, others in arrows.items():
        for other in others:
            importers[other].append(name)
    packages = set(rooms.values())
    return sum(
        len(by) == 1 and rooms[by[0]] == rooms[name] and name not in packages
        for name, by in importers.items()
    )


def lists_of(module: Module) -> Iterator[tuple[str, set[str]]]:
    """Lists of names: parameters of functions, keywords of calls, annotated fields of classes.

    With each the class whose fields it names, where it is one's or those of a call of one.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            yield "", {arg.arg for arg in (*arguments.args, *arguments.kwonlyargs)}
        elif isinstance(node, ast.Call):
            names = {keyword.arg for keyword in node.keywords if keyword.arg}
            yield ast.unparse(node.func).rpartition(".")[2], names
        elif isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            names = {field.id for field in fields if isinstance(field, ast.Name)}
            yield node.name, names
            calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
            made = (call for call in calls if ast.unparse(call.func) == "cls")
            yield from ((node.name, {one.arg for one in call.keywords if one.arg}) for call in made)


def repeated_lists(modules: list[Module]) -> int:
    """Pairs of lists that share eight names or more, half of the longer one at least.

    A call that names the fields of the object which it makes repeats nothing.
    """
    every = (lists for module in modules for lists in lists_of(module))
    lists = [(owner, names) for owner, names in every if len(names) >= LONG_LIST and owner != "cls"]
    return sum(
        len(one & other) >= max(LONG_LIST, max(len(one), len(other)) / 2)
        and not (owner and owner == maker)
        for n, (owner, one) in enumerate(lists)
        for maker, other in lists[:n]
    )


def count(root: Path) -> dict[str, int]:
    """Every count of the house under the root of a checkout; all are wanted low."""
    modules = modules_of(root)
    arrows = arrows_of(modules)
    rooms = Counter(module.room for module in modules if module.name.count(".") > 1)
    docstrings = [text for module in modules for text in module.docstrings()]
    classes = Counter(
        node.name
        for module in modules
        for node in module.definitions()
        if isinstance(node, ast.ClassDef)
    )
    assigned = (
        ast.unparse(node.value)
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
    )
    functions = [
        node
        for module in modules
        if module.name.startswith("mltree.cli")
        for node in module.definitions()
        if isinstance(node, ast.FunctionDef)
    ]
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules),
        "rooms": len(rooms),
        "files of the fullest room": max(rooms.values()) + 1,
        "loose modules": sum(module.name.count(".") == 1 for module in modules)
        - len({room for room in rooms if room.count(".") == 1}),
        "circles of imports": circles_of(arrows),
        "modules whose only importer stands beside them": lonely_of(modules, arrows),
        "array aliases outside their module": max(
            sum(bool(ARRAY_ALIAS.fullmatch(text)) for text in assigned) - 8, 0
        ),
        "lists of eight names or more written twice": repeated_lists(modules),
        "parameters of the widest function of the command line": max(
            (len(node.args.args) + len(node.args.kwonlyargs) for node in functions), default=0
        ),
        "docstrings that begin with What, Whether or Of": sum(
            bool(RIDDLE.match(text.lstrip())) for module in modules for text in module.described()
        ),
        "docstrings of three words or fewer": sum(
            len(text.split()) <= FEW_WORDS for text in docstrings
        ),
        "class names that occur twice": sum(times > 1 for times in classes.values()),
    }


def count_at(commit: str) -> dict[str, int]:
    """The counts of a commit."""
    command = ["git", "archive", commit, "mltree"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        return count(Path(folder))


def main(arguments: list[str]) -> None:
    """Print the counts, or how two commits differ."""
    before = {}
    if arguments:
        first, _, last = arguments[0].partition("..")
        before, after = count_at(first), count_at(last or "HEAD")
    else:
        after = count(ROOT)
    for name, value in after.items():
        was = f"{before[name]:>8,} -> " if before else ""
        print(f"{was}{value:>8,}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
