"""Where the project's checkout is, and a Python of its own that finds the package."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parents[1]


def run_python(
    *words: str, python: str = sys.executable, cwd: Optional[Path] = None, **environment: str
) -> subprocess.CompletedProcess:
    """Runs a Python until its end; what it prints is kept as text."""
    variables = {"PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run(
        [python, *words],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
