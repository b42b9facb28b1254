"""Results as JSON: written after every row, so that a run cut short keeps what it has measured."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Row", "Run", "identity", "load", "repeated"]

FOLDER = Path(__file__).parent / "results"
"""Where stored results lie."""

SCHEMA = 1
"""Version of the files' shape."""

Row = dict[str, Any]

_IDENTITY = ("what", "contender", "threads", "dataset", "seed", "kind", "taxa", "patterns", "model",
             "precision", "operation", "axis", "point", "starter")  # fmt: skip


@dataclass
class Run:
    """One benchmark's run: what it was, where, and its rows."""

    bench: str
    provenance: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    checks: list[Row] = field(default_factory=list)
    """What must hold between rows, and whether it did."""
    path: Path | None = None

    def add(self, row: Row) -> None:
        """A row more, on disk at once; it takes the place of an earlier one of the same thing."""
        row |= {name: self.provenance[name] for name in ("utc", "commit")}
        self.rows[:] = [old for old in self.rows if identity(old) != identity(row)]
        self.rows.append(row)
        self.save()

    def seen(self) -> dict[str, Row]:
        """The rows so far, by what they are about (`identity`)."""
        return {identity(row): row for row in self.rows}

    def check(self, **fields: Any) -> None:
        """A check more, on disk at once; it takes the place of an earlier one of the same thing."""
        self.checks[:] = [old for old in self.checks if identity(old) != identity(fields)]
        self.checks.append(fields)
        self.save()

    def go_on_from(self, earlier: Run) -> None:
        """Keep the rows of an earlier run, each with its own date and commit, and add to them."""
        self.rows = earlier.rows
        self.checks = earlier.checks
        self.settings = {**earlier.settings, **self.settings}
        self.provenance["earlier"] = _told(earlier)

    def absorb(self, other: Run) -> None:
        """Take over the rows of another run of the same benchmark, in the place of the same ones.

        Raises:
            ValueError: it is another benchmark's.
        """
        if other.bench != self.bench:
            raise ValueError(f"a run of {other.bench}, not of {self.bench}")
        self.rows = list((self.seen() | other.seen()).values())
        self.checks += other.checks
        alignments = self.settings.get("alignments", {}) | other.settings.get("alignments", {})
        self.settings = {**other.settings, **self.settings}
        if alignments:
            self.settings["alignments"] = alignments
        self.provenance["earlier"] = self.provenance.get("earlier", []) + _told(other)

    def save(self) -> None:
        """Write the file, atomically."""
        if self.path is None:
            return
        content = {
            "schema": SCHEMA,
            "bench": self.bench,
            "provenance": self.provenance,
            "settings": self.settings,
            "checks": self.checks,
            "rows": self.rows,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(self.path)


def _told(run: Run) -> list[dict[str, Any]]:
    """What is kept of a run's provenance, and of those that it goes on from, beside newer ones."""
    made = run.provenance
    told = {name: made[name] for name in ("utc", "commit", "command", "cpu", "devices")}
    return [*made.get("earlier", []), told]


def identity(row: Row) -> str:
    """What a row is about, whatever it measured."""
    return json.dumps([row.get(name) for name in _IDENTITY])


def load(path: Path) -> Run:
    """A stored run.

    Raises:
        ValueError: the file has another shape.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path.name}: schema {content.get('schema')}, not {SCHEMA}")
    return Run(
        content["bench"],
        content["provenance"],
        content["settings"],
        content["rows"],
        content["checks"],
        path,
    )


def repeated(values: Sequence[float]) -> Row | None:
    """Median and spread of repeated measurements; None where there are none."""
    if not values:
        return None
    return {
        "median": _short(statistics.median(values)),
        "min": _short(min(values)),
        "max": _short(max(values)),
        "n": len(values),
    }


def _short(value: float) -> float:
    """Six significant digits: more than any clock is worth."""
    return float(f"{value:.6g}") if math.isfinite(value) else value
