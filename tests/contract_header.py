"""Renders ``opencl/contract.h``: ``python tests/contract_header.py`` rewrites it."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

import numpy as np

from mltree.program.contract import ARGUMENTS, BUFFERS, ENUMS, NUMBERS, STATE, Fault, Mark, Sync
from mltree.program.ops.operation import CASE, NAMES, RUNS, STAGE, STAGES
from mltree.program.ops.sites import Sites

__all__ = ["render_header"]

_GLUE = "~"
"""Holds together what lines are not broken at."""


def render_header() -> str:
    """The text of ``opencl/contract.h``."""
    lines = [
        "// Rendered from mltree/program by tests/contract_header.py. Do not edit.",
        "// clang-format off",
    ]
    for prefix, kinds in (("OP", STAGES), ("DO", RUNS)):
        assert sorted(kinds) == list(range(len(kinds))), f"{prefix}: numbers with a gap"
        lines += [f"#define {prefix}_{kinds[n].name} {n}" for n in sorted(kinds)]
    for prefix, members in (ENUMS | {"FAULT": Fault, "SYNC": Sync, "MARK": Mark}).items():
        lines += [f"#define {prefix}_{member.name} {member.value}" for member in members]
    lines += [
        f"#define {name} ({value})" for name, value in (NUMBERS | {"SYNC_WORDS": len(Sync)}).items()
    ]
    for name, record in _records():
        assert record.names is not None
        lines.append(f"#define {name}_WORDS {len(record.names)}")
        lines += [f"#define {name}_{f.upper()} {i}" for i, f in enumerate(record.names)]
    functions = ", ".join(f"FN_{RUNS[n].function.name}" for n in sorted(RUNS))
    lines += [f"#define RUN_FUNCTIONS {{{functions}}}", "", *_arguments(), *_state()]
    return "\n".join(lines) + "\n"


def _records() -> list[tuple[str, np.dtype[np.void]]]:
    """The records whose fields kernels know, in the order of stages, and of runs behind SITES."""
    of_runs = [RUNS[n].layout for n in sorted(RUNS)]
    records = [STAGE, CASE]
    for number in sorted(STAGES):
        records += [*STAGES[number].layouts, *(of_runs if number == Sites.number else [])]
    return [(NAMES[record], record) for record in dict.fromkeys(records) if record in NAMES]


def _arguments() -> list[str]:
    """The worker's parameters, and the session that holds them."""
    members = []
    for name, of, meaning, is_read_only in BUFFERS:
        const = "const " if is_read_only else ""
        members.append(f"__global {const}{of} *{name}; /* {meaning} */")
    members += [f"{of} {name}; /* {meaning} */" for name, of, meaning, _ in ARGUMENTS]
    buffers = [
        f"__global const {of} *restrict {name}" if is_read_only else f"__global {of} *{name}"
        for name, of, _, is_read_only in BUFFERS
    ]
    return [
        *_macro("SESSION_MEMBERS", members),
        *_macro("WORKER_BUFFERS", _wrapped(buffers)),
        *_macro("WORKER_NUMBERS", _wrapped([f"{of} {name}" for name, of, *_ in ARGUMENTS])),
        *_macro("SESSION_VALUES", _wrapped([item.name for item in (*BUFFERS, *ARGUMENTS)])),
    ]


def _wrapped(items: list[str]) -> list[str]:
    """The items, a comma behind each, on as few lines as hold them."""
    whole = " ".join(f"{item},".replace(" ", _GLUE) for item in items)
    return [line.replace(_GLUE, " ") for line in wrap(whole, 96)]


def _macro(name: str, lines: list[str]) -> list[str]:
    body = [f"  {line}" for line in lines]
    return [f"#define {name} \\", *(f"{line} \\" for line in body[:-1]), body[-1]]


def _state() -> list[str]:
    """Where the parts of a session's state start."""
    sizes = {
        "LENGTHS": "(s)->lengths",
        "HEADER_WORDS": "HEADER_WORDS",
        "CONTROLS": "(size_t)(s)->controls * CONTROL_WORDS",
    }
    lines, before = [], "(s)->state"
    for name, size in STATE:
        lines.append(f"#define {name}_AT(s) ({before})")
        before = f"{name}_AT(s) + {sizes.get(size, '')}"
    return lines


if __name__ == "__main__":
    (Path(__file__).parent.parent / "opencl" / "contract.h").write_text(render_header())
