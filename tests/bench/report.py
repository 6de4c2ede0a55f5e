"""Results of a benchmark: ratios and their targets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Ratio:
    what: str
    peer: str
    ours: str
    ratio: float
    target: float

    @property
    def passed(self) -> bool:
        """True if the ratio meets the target."""
        return self.ratio >= self.target

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def show(ratios: list[Ratio], console: Console) -> None:
    table = Table(title="against named peers, medians")
    for column in ("what", "peer", "ours", "ratio", "target", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for ratio in ratios:
        verdict = "[green]pass[/green]" if ratio.passed else "[red]FAIL[/red]"
        table.add_row(ratio.what, ratio.peer, ratio.ours, f"{ratio.ratio:.2f}x", f"≥ {ratio.target:.2f}x", verdict)
    console.print(table)


def show_nodes(peer: dict[str, float], ours: dict[str, float], console: Console) -> None:
    """Prints the cost of each component of two pipelines."""
    table = Table(title="CPU seconds per component, medians")
    for column in ("component", "TFX's MNIST example", "ours", "ratio"):
        table.add_column(column, justify="left" if column == "component" else "right")
    pairs = {name: _PEERS.get(name, name) for name in ours}
    for name, other in pairs.items():
        table.add_row(name, _seconds(peer.get(other)), _seconds(ours[name]), _times(peer.get(other), ours[name]))
    for name in peer:
        if name not in pairs.values():
            table.add_row(name, _seconds(peer[name]), "", "")
    table.add_section()
    together = sum(peer.values()), sum(ours.values())
    table.add_row("together", *map(_seconds, together), _times(*together))
    console.print(table)


# Our component and its counterpart in TFX's example.
_PEERS = {"TfdsExampleGen": "ImportExampleGen", "ImageSchemaGen": "SchemaGen"}


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _times(peer: float | None, ours: float) -> str:
    return "" if peer is None or not ours else f"{peer / ours:.1f}x"
