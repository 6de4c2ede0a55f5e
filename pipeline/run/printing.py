"""The console that a run and a bench print to."""

from __future__ import annotations

from typing import IO, Optional

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.text import Text

from tfx_estimator.pipeline.base.text import one_line, printable


def make_console(terminal: IO[str], width_of_a_file: Optional[int] = None) -> Console:
    """Makes a console of what `quiet` leaves for us; it takes no text for markup, and prints no control characters.

    Args:
        terminal: The terminal, or a file in its place.
        width_of_a_file: In characters, if it is a file; None takes the environment's.
    """
    width = None if terminal.isatty() else width_of_a_file
    console = Console(file=terminal, highlight=False, soft_wrap=True, width=width, markup=False, emoji=False)
    console.push_render_hook(_Escape())
    return console


def title(console: Console, name: str, what: str, where: str) -> None:
    """Prints the first line: what runs where.

    Args:
        what: Where its declaration came from, say.
        where: The folder of its results.
    """
    console.print(Text.assemble((name, "bold"), f"  {one_line(what)}  →  {one_line(where)}"))


class Escaped:
    """Shows what it holds, without what a terminal would obey in its text.

    Args:
        renderable: Whatever rich can show.
    """

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class _Escape(RenderHook):
    """Whatever is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [Escaped(each) for each in renderables]
