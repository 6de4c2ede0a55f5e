"""The project's checkout, and fresh Python processes that find the package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[1]


def run_python(
    *words: str,
    python: str = sys.executable,
    cwd: Optional[Path] = None,
    timeout: float = 280,
    code: Optional[int] = None,
    **environment: str,
) -> subprocess.CompletedProcess:
    """Runs a Python process to its end, by an exit code if one is given, and captures its output as text."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run(
        [python, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert code in (None, done.returncode), done.stdout[-1000:] + done.stderr[-4000:]
    return done


def start_python(*words: str, cwd: Optional[Path] = None, **environment: str) -> subprocess.Popen:
    """Starts a Python process with text pipes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, text=True, **pipes)


def finish(*processes: subprocess.Popen, timeout: float = 200) -> list[str]:
    """Waits for processes, which must succeed; returns what each printed to stdout. Kills the rest after an error."""
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), [stderr[-3000:] for _, stderr in outputs]
    return [stdout for stdout, _ in outputs]


def answers(*words: str, **options: Any) -> list[Any]:
    """Runs a Python process in the checkout; returns its output's lines, parsed as JSON."""
    done = run_python(*words, cwd=ROOT, code=0, **options)
    return [json.loads(line) for line in done.stdout.splitlines()]
