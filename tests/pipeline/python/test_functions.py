"""Verbs as Python functions: arguments, exceptions, and interruption."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import itertools
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

import tfx_estimator
from tests.root import run_python, start_python
from tests.waiting import wait_until
from tfx_estimator.pipeline.config.put_values import parse_variations
from tfx_estimator.pipeline.config.yaml_text import read_yaml
from tfx_estimator.pipeline.python import functions
from tfx_estimator.pipeline.python.call import set_words

# Python installs no handler of SIGINT where its parent ignores the signal, as a shell does for commands with `&`.
RUN = """
import signal
import tfx_estimator
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    tfx_estimator.run("digits")
except KeyboardInterrupt as end:
    print("ended:", end)
"""


@pytest.mark.parametrize("value", [1e-5, 0.25, 7, True, None, "text", "1e-5", "a: b, c", [1, "x"], {"a": [1.5]}])
def test_an_override_has_the_value_that_it_has_in_python(value) -> None:
    option, word = set_words({"trainer.params.given": value})
    assert (option, word.partition("=")[0]) == ("--set", "trainer.params.given")
    assert read_yaml(word.partition("=")[2], "").value == value


def test_values_are_varied_as_they_are_in_python() -> None:
    words = set_words({"trainer.seed": range(2), "optimizer.name": ("adam", "momentum")}, "--vary")
    assert words[::2] == ["--vary", "--vary"]
    found = [each.values for each in parse_variations(words[1::2])]
    assert [each["trainer.seed"] for each in found] == ["0", "0", "1", "1"]
    assert [each["trainer.optimizer.name"] for each in found] == ["adam", "momentum"] * 2


KINDS = {
    "numpy": np.float64(0.001),
    "whole": np.int32(7),
    "flag": np.bool_(True),
    "path": Path("a.png"),
    "bytes": b"a.png",
    "array": np.zeros((2, 2)),
    "names": np.array(["a", "b"]),
    "series": pd.Series([1, 2]),
    "range": range(2),
    "generator": (each for each in "ab"),
    "nested": [("a", Path("b")), ["c"]],
    "mapping": {"a": np.int64(1)},
    "none": None,
    "text": "a=b,c",
    "object": object(),
    "number": 7,
    "class": int,
}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.logspace(-3, -2, 2)[0], 0.001),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(False), False),
        (np.str_("name"), "name"),
        (Path("a/b"), "a/b"),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (pd.Series([1, 2]), [1, 2]),
        (range(2), [0, 1]),
        ((each for each in (1, Path("c"))), [1, "c"]),
        ({"a": {"b": np.float64(1.5)}}, {"a": {"b": 1.5}}),
    ],
)
def test_values_of_other_libraries_are_those_of_the_declaration(value, plain) -> None:
    (_, word) = set_words({"trainer.params.given": value})
    found = read_yaml(word.partition("=")[2], "").value
    assert (found, type(found)) == (plain, type(plain))


def test_what_is_varied_and_set_may_be_as_on_the_command_line() -> None:
    rates = np.logspace(-3, -2, 2)
    found = parse_variations(set_words({"trainer.optimizer.learning_rate": rates}, "--vary")[1::2])
    assert [float(each.values["trainer.optimizer.learning_rate"]) for each in found] == [0.001, 0.01]
    words = set_words({"a": [[1, 2], [3]], "b": {"c": 1}, "d": 7, "e": "x,y"}, "--vary")
    assert words[1::2] == ["a=[1, 2], [3]", "b={c: 1}", "d=7", "e=x,y"]
    assert set_words("trainer.path=estimator,keras", "--vary") == ["--vary", "trainer.path=estimator,keras"]
    assert set_words(["a=1", "b=2"]) == ["--set", "a=1", "--set", "b=2"]
    assert tfx_estimator.validate("digits", "trainer.train_steps=7").declaration.trainer.train_steps == 7


@pytest.mark.parametrize("verb", ["run", "compare", "bench", "predict", "validate"])
def test_every_kind_of_argument_is_taken_or_refused_as_ours(monkeypatch, tmp_path, verb) -> None:
    """The verb's process does not start, only the words of its command line are made."""
    lines = []
    monkeypatch.setattr(functions, "call", lambda words, progress: lines.append(words) or str(tmp_path))
    monkeypatch.setattr(functions, "_read", lambda folder, name: {})
    function, refused = getattr(tfx_estimator, verb), []
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if name == "deep":  # a flag that starts a process
            continue
        is_flag = isinstance(parameter.default, bool)
        for kind, value in KINDS.items():
            if is_flag and kind not in ("flag", "whole", "number", "none"):
                continue
            given = () if next(iter(parameters)) == name else ("digits",)
            given, named = (
                ((*given, value), {}) if parameter.kind is not parameter.KEYWORD_ONLY else (given, {name: value})
            )
            try:
                with contextlib.suppress(FileNotFoundError):  # of predict, whose process has written no file
                    function(*given, **named)
            except tfx_estimator.TfxEstimatorError:
                refused.append((name, kind))
    assert all(isinstance(word, str) for words in lines for word in words)
    first = next(iter(parameters))
    assert {(first, "object"), (first, "array"), (first, "number")} <= {*refused}


def test_lists_of_paths_and_texts_are_taken(monkeypatch, tmp_path) -> None:
    lines = []
    monkeypatch.setattr(functions, "call", lambda words, progress: lines.append(words) or str(tmp_path))
    monkeypatch.setattr(functions, "_read", lambda folder, name: {})
    result = tfx_estimator.RunResult("logs", {})
    tfx_estimator.compare(["a", Path("b")], result, vary="trainer.path=estimator,keras")
    assert lines[-1][:4] == ["compare", "a", "b", "logs"]
    assert lines[-1][lines[-1].index("--vary") + 1] == "trainer.path=estimator,keras"
    with contextlib.suppress(FileNotFoundError):
        tfx_estimator.predict(result, ["a.png", Path("b")], "c", pixels=(0, 1))
    assert "--pixels=0, 1" in lines[-1]
    assert lines[-1][-5:] == ["--", "logs", "a.png", "b", "c"]
    tfx_estimator.bench("a", "one_device,mirrored:2", paths=["keras"])
    assert [lines[-1][lines[-1].index(each) + 1] for each in ("--strategies", "--paths")] == [
        "one_device,mirrored:2",
        "keras",
    ]


def test_validate_gives_the_declaration() -> None:
    found = tfx_estimator.validate(Path("digits"), {"trainer.train_steps": 7})
    assert (found.source, found.declaration.trainer.train_steps, found.tried) == ("digits", 7, "")
    with pytest.raises(tfx_estimator.DeclarationError, match=r"trainer\.train_steps: 0"):
        tfx_estimator.validate("digits", {"trainer.train_steps": 0})


def test_later_sources_override_earlier_ones(tmp_path) -> None:
    for name, steps in (("one", 7), ("two", 8)):
        (tmp_path / f"{name}.yaml").write_text(f"trainer: {{train_steps: {steps}}}\n")
    sources = ["digits", tmp_path / "one.yaml", str(tmp_path / "two.yaml")]
    found = tfx_estimator.validate(sources)
    assert found.declaration.trainer.train_steps == 8
    assert found.declaration == tfx_estimator.validate("+".join(map(str, sources))).declaration
    (tmp_path / "two.yaml").write_text("trainer: {train_steps: 0}\n")
    for verb in (tfx_estimator.run, tfx_estimator.bench):
        with pytest.raises(tfx_estimator.DeclarationError, match=r"two\.yaml:1 +trainer\.train_steps: 0"):
            verb(sources, workdir=tmp_path / "runs", progress=False)


def test_a_wrong_declaration_is_raised_and_not_printed_to_a_replaced_stderr(tmp_path) -> None:
    async def cell() -> None:
        """Runs as in a notebook, whose event loop is already running."""
        with pytest.raises(tfx_estimator.DeclarationError) as raised:
            tfx_estimator.run("digits", tmp_path / "runs", {"trainer.train_steps": 0})
        assert "trainer.train_steps: 0" in raised.value.what
        assert (raised.value.exit_code, raised.value.folder) == (2, "")

    with contextlib.redirect_stderr(io.StringIO()) as output, contextlib.redirect_stdout(output):
        asyncio.run(cell())
    assert output.getvalue() == ""
    assert not (tmp_path / "runs").exists()


def test_several_threads_may_call() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def wrong(key: str) -> str:
        with pytest.raises(tfx_estimator.DeclarationError) as raised:
            tfx_estimator.compare("digits", vary={key: [1, 2]}, progress=False)
        return raised.value.what

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(wrong, ["trainer.sed", "trainer.stepz"])
    assert "trainer.sed" in one
    assert "trainer.stepz" in other
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def _wait_for_run(folder: Path) -> None:
    logs = "runs/digits/logs/*/declaration.yaml"
    wait_until(lambda: any(folder.glob(logs)), logs, 60)


def test_an_interrupted_run_ends_in_order_and_the_next_can_begin(tmp_path) -> None:
    with start_python("-c", RUN, cwd=tmp_path) as process:
        _wait_for_run(tmp_path)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "ended: interrupted" in stdout
    assert children
    assert not any(each.is_running() for each in children)
    (summary,) = tmp_path.glob("runs/digits/logs/*/summary.json")
    assert '"state": "interrupted"' in summary.read_text()


def test_nothing_outlives_a_killed_caller(tmp_path) -> None:
    with start_python("-c", RUN, cwd=tmp_path) as process:
        _wait_for_run(tmp_path)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert children
        assert psutil.wait_procs(children, timeout=10)[1] == []


def test_a_module_of_the_current_folder_shadows_none(tmp_path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('hidden')")
    code = "import sys; sys.path.remove(''); import tfx_estimator.pipeline.python.functions; sys.path.insert(0, ''); "
    code += "tfx_estimator.compare('digits')"
    done = run_python("-c", code, cwd=tmp_path)
    assert "DeclarationError" in done.stderr
    assert "hidden" not in done.stderr


def test_the_error_of_a_failed_run_names_its_folder(tmp_path) -> None:
    for place in itertools.product(("train", "test"), ("cat", "dog")):
        (folder := tmp_path.joinpath("images", *place)).mkdir(parents=True)
        (folder / "one.png").write_bytes(b"")
    with pytest.raises(tfx_estimator.DataError, match="damaged file") as raised:
        tfx_estimator.run("digits", tmp_path / "runs", {"data.dataset": str(tmp_path / "images")}, progress=False)
    result = tfx_estimator.RunResult.of(raised.value.folder)
    assert Path(result.logs).parent == tmp_path / "runs" / "digits" / "logs"
    assert (result.summary["state"], result.summary["exit_code"]) == ("failed", raised.value.exit_code)
    assert result.report
