"""Where the project's checkout is, and a Python of its own that finds the package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[1]


def run_python(
    *words: str, python: str = sys.executable, cwd: Optional[Path] = None, timeout: float = 280, **environment: str
) -> subprocess.CompletedProcess:
    """Runs a Python until its end; what it prints is kept as text."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run(
        [python, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


def start_python(*words: str, cwd: Optional[Path] = None, **environment: str) -> subprocess.Popen:
    """Starts a Python; what it is told and what it prints are pipes of text."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, text=True, **pipes)


def finish(*processes: subprocess.Popen, timeout: float = 200) -> list[str]:
    """Waits for processes that must end well; returns what each has printed. None of them is left."""
    try:
        said = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), [errors[-3000:] for _, errors in said]
    return [printed for printed, _ in said]


def answers(*words: str, **options: Any) -> list[Any]:
    """What a Python in the checkout prints, which is JSON line by line."""
    done = run_python(*words, cwd=ROOT, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
