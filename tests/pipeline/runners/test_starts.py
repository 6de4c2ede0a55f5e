"""What no machine could start is not compiled."""

from __future__ import annotations

import dataclasses
import subprocess
from typing import Any

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.targets import TARGETS
from tfx_estimator.pipeline.runners import compiling as starts

pytestmark = pytest.mark.unit


@pytest.fixture
def many(monkeypatch):
    """Has the digits' data as many classes as are said, by long names."""
    from tfx_estimator.pipeline import build

    opened = build.open_source

    def use(count: int) -> None:
        def opening(*args: Any, **options: Any) -> Any:
            source = opened(*args, **options)
            names = tuple(f"{number:05d}_Animalia_Chordata_Aves_Passeriformes" for number in range(count))
            source.info = dataclasses.replace(source.info, label_names=names)
            return source

        monkeypatch.setattr(build, "open_source", opening)

    return use


@pytest.mark.parametrize("target", TARGETS)
def test_what_no_machine_could_start_is_not_compiled(many, target, tmp_path, capsys):
    words = [word for each in (*COMMON, *OF_TARGET[target]) for word in ("--set", each)]
    output = tmp_path / "it.yaml"
    for count, code in ((300, 0), (6000, 2)):
        many(count)
        assert main(["compile", "digits", "--target", target, "--output", str(output), *words]) == code
        assert output.exists() == (code == 0)
        output.unlink(missing_ok=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "rainer could not be started: one of its arguments has" in said
    assert "names of the data's classes" in said
    assert main(["submit", "digits", "--target", target, "--dry-run", *words]) == 2


def test_the_bound_is_the_kernels():
    def starts_with(size: int) -> subprocess.CompletedProcess:
        return subprocess.run(["/bin/true", "x" * size], check=True)

    starts_with(131_071)
    with pytest.raises(OSError, match="Argument list too long"):
        starts_with(131_072)
    assert starts.MOST_BYTES < 131_071
