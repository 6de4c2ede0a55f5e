"""The first page's figures, from a real run in a fresh folder: `python docs/site/draw.py FOLDER` writes them."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 110
# A spinner's line, and the codes by which the next line replaces it.
_REPLACED = re.compile(r"[^\n]*\n\x1b\[\?25h\r\x1b\[1A\x1b\[2K|\x1b\[\?25[lh]")
_BROWSER = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,900")


def draw(folder: Path) -> None:
    """Writes terminal.svg, report.html and, if there is a Chromium, report.png."""
    work = (folder / "run").resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), color_system="standard")
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": f"{_WIDTH}"}
    words = [sys.executable, "-m", "tfx_estimator", "run", "digits"]
    output = subprocess.run(words, cwd=work, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()
    console.print("[bold green]$[/] [bold]tfx-estimator run digits[/]")
    console.print(Text.from_ansi(_REPLACED.sub("", output).replace(f"{work}/", "")))
    svg = console.export_svg(title="tfx-estimator")
    # Fonts of another site.
    (folder / "terminal.svg").write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")
    (report,) = work.glob("runs/digits/logs/*/report.html")
    shutil.copy(report, folder)
    if browser := shutil.which("chromium") or shutil.which("google-chrome"):
        picture = f"--screenshot={(folder / 'report.png').resolve()}"
        subprocess.run([browser, *_BROWSER, picture, report.as_uri()], stderr=subprocess.DEVNULL, check=True)
    else:
        print("no chromium (Debian: apt-get install chromium): the first page is without the report's picture")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
