"""Completion in bash by the script that shtab writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import shtab

from tfx_estimator.__main__ import make_parser

ASK = 'COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_tfx_estimator; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run", "runs"]),
        (["run", "--work"], ["--workdir"]),
        (["run", "mi"], ["mine.yaml"]),
        (["run", "mine.yaml", "--workdir", "so"], ["somewhere"]),
        (["compile", "mine.yaml", "--target", "kube"], ["kubeflow"]),
    ],
)
def test_verbs_options_and_files_are_offered(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "somewhere").mkdir()
    script = f"{shtab.complete(make_parser(), shell='bash')}\n{ASK}"
    command = ["bash", "-c", script, "bash", "tfx-estimator", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert sorted(set(done.stdout.split())) == offered
