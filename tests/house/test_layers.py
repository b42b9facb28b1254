"""Who may import whom: the data flow's direction, and one home for each outside library."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "mltree").rglob("*.py"))

LAYERS = (
    (
        "mltree.errors",
        "mltree.contract",
        "mltree.stopping",
        "mltree.files",
        "mltree.streams",
        "mltree.threads",
        "mltree.heap",
        "mltree.habits",
        "mltree.config",
        "mltree.clean_start",
        "mltree.ranks",
        "mltree.values",
        "mltree.shares",
        "mltree.numerals",
    ),
    ("mltree.launch",),
    ("mltree.header",),
    ("mltree.alignment",),
    ("mltree.model",),
    ("mltree.tree",),
    ("mltree.settings", "mltree.events"),
    ("mltree.likelihood", "mltree.supports", "mltree.simulation", "mltree.drawing"),
    ("mltree.search", "mltree.device"),
    ("mltree.report", "mltree.outputs", "mltree.log", "mltree.placement"),
    ("mltree.berths",),
    (
        "mltree.starts",
        "mltree.model_option",
        "mltree.problem",
        "mltree.given_trees",
        "mltree.choice.scored_models",
        "mltree.choice.curvatures",
        "mltree.choice.widths",
        "mltree.choice.sieve",
        "mltree.choice.rate_screening",
        "mltree.choice.model_choice",
        "mltree.choice.part_sets",
        "mltree.choice.merging",
    ),
    ("mltree.runs.computation",),
    ("mltree.runs.run", "mltree.runs.resampled", "mltree.runs.journal"),
    ("mltree.runs", "mltree.choice"),
    ("mltree.commands", "mltree.compare"),
    ("mltree.cli.help", "mltree.cli.parsers"),
    ("mltree.exits", "mltree.cli.options"),
    ("mltree.cli.support_options",),
    ("mltree.api",),
    (
        "mltree.cli.ancestral",
        "mltree.cli.bootstrap",
        "mltree.cli.model",
        "mltree.cli.run",
        "mltree.cli.tests",
        "mltree.cli.tools",
        "mltree.cli.trees",
    ),
    ("mltree.cli",),
    ("mltree.__main__",),
)
"""From the ground up; a module imports from its own layer and from those below."""

STRANGERS = (("mltree.search", "mltree.device"), ("mltree.device", "mltree.search"))
"""Neighbours that know each other only through the engine protocol."""

HOMES = {
    "mpi4py": ("mltree.ranks.mpi",),
    "pyopencl": ("mltree.device",),
    "ete3": ("mltree.tree.newick",),
    "typer": ("mltree.cli", "mltree.exits"),
    "rich": ("mltree.report", "mltree.cli", "mltree.commands"),
    "scipy": ("mltree.supports",),
    "matplotlib": ("mltree.drawing.figure",),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer_of(module: str) -> int | None:
    """The layer of a module; None for the bare package."""
    for number, packages in enumerate(LAYERS):
        if any(is_in(module, package) for package in packages):
            return number
    return None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    module = name_of(path)
    if module == "mltree":
        imported = {name.partition(".")[0] for name in imports_of(path)}
        assert imported <= {"__future__", "sys", "types", "typing", "mltree"}
        return
    layer = layer_of(module)
    assert layer is not None, f"{module} has no layer: give it one in this test"
    for imported in imports_of(path):
        other = layer_of(imported)
        assert other is None or other <= layer, f"{module} imports {imported} from above"
        for one, stranger in STRANGERS:
            assert not (is_in(module, one) and is_in(imported, stranger)), f"{module}: {imported}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_outside_libraries_stay_at_home(path: Path) -> None:
    module = name_of(path)
    for imported in imports_of(path):
        homes = HOMES.get(imported.partition(".")[0])
        assert homes is None or any(is_in(module, home) for home in homes), (
            f"{module} imports {imported}"
        )
