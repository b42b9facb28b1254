"""Who may import whom: the data flow's direction, and one home for each outside library."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "mltree").rglob("*.py"))

LAYERS = (
    ("system",),
    ("data", "tree"),
    ("models", "dating"),
    ("program",),
    ("likelihood", "supports", "diversity"),
    ("device", "fit"),
    ("treesearch", "sampling", "report"),
    ("runs",),
    ("analyses",),
    ("cli",),
)
"""Rooms from the ground up; one imports from its own floor and from those below."""

STRANGERS = ({"treesearch", "device"}, {"fit", "device"}, {"treesearch", "report"})
"""Neighbours that do not know each other: what is searched for, and where that is computed."""

MOST_ROOMS = 19
MOST_FILES = 23
MOST_LOOSE = 2

HOMES = {
    "mpi4py": ("mltree.system.rank_processes",),
    "pyopencl": ("mltree.device",),
    "ete3": ("mltree.tree.clades",),
    "typer": ("mltree.cli",),
    "rich": ("mltree.report",),
    "h5py": ("mltree.diversity.table",),
    "scipy": (),
    "matplotlib": ("mltree.report.scene",),
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


def room_of(module: str) -> str:
    """The room of a module; empty for a loose one."""
    package, _, rest = module.removeprefix("mltree.").partition(".")
    return package if rest or (ROOT / "mltree" / package).is_dir() else ""


FLOORS = {room: floor for floor, rooms in enumerate(LAYERS) for room in rooms}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    module = name_of(path)
    if module == "mltree":
        imported = {name.partition(".")[0] for name in imports_of(path)}
        assert imported <= {"__future__", "importlib", "typing", "mltree"}
        return
    room = room_of(module)
    if not room:
        assert module == "mltree.__main__", f"{module} lies loose: give it a room"
        return
    for imported in imports_of(path):
        if not imported.startswith("mltree.") or not (other := room_of(imported)):
            continue
        assert FLOORS[other] <= FLOORS[room], f"{module} imports {imported} from above"
        assert {room, other} not in STRANGERS, f"{module}: {imported}"


def test_rooms_are_few_and_not_full() -> None:
    rooms = {path.parent for path in MODULES} - {ROOT / "mltree"}
    assert len(rooms) <= MOST_ROOMS
    for room in rooms:
        assert len(list(room.glob("*.py"))) <= MOST_FILES, f"{room.name} is full"
    assert len(list((ROOT / "mltree").glob("*.py"))) <= MOST_LOOSE


def test_modules_import_each_other_in_no_circle() -> None:
    modules = {name_of(path): path for path in MODULES}
    graph = {
        name: {imported for imported in imports_of(path) if imported in modules} - {name, "mltree"}
        for name, path in modules.items()
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise AssertionError(f"modules in a circle: {error.args[1]}") from None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_outside_libraries_stay_at_home(path: Path) -> None:
    module = name_of(path)
    for imported in imports_of(path):
        homes = HOMES.get(imported.partition(".")[0])
        assert homes is None or any(is_in(module, home) for home in homes), (
            f"{module} imports {imported}"
        )
