"""The command line as a whole: verbs, exit codes, speed, and what is not imported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.root import ROOT, run_python, start_python
from tfx_estimator import __main__ as command_line
from tfx_estimator.__main__ import VERBS, main
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.platforms.registry import OTHERS

BENCH = ["bench", "strategies", "digits"]
HEAVY = ["tensorflow", "tfx", "apache_beam", "numpy", "pandas", "tensorflow_datasets", "tensorflow_transform", "rich"]
HEAVY += ["matplotlib"]


# A light verb takes the time of its imports, about a millisecond a module; a count is the same on every machine.
@pytest.mark.parametrize(
    ("arguments", "most", "refusal"),
    [
        (["--help"], 190, ""),
        (["run", "--help"], 190, ""),
        (["validate", "mnist"], 360, ""),
        (["show", "digits"], 360, ""),
        (["schema"], 360, ""),
        ([*BENCH, "--strategies", "mirrored:3"], 360, "64 examples do not divide evenly among 3 "),
    ],
)
def test_light_verbs_and_refusals_import_little_and_nothing_heavy(arguments, most, refusal):
    code = (
        "import sys; from tfx_estimator.__main__ import main; code = main(sys.argv[1:]);"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]; assert not found, found;"
        f"assert len(sys.modules) <= {most}, len(sys.modules); sys.exit(code)"
    )
    done = run_python("-c", code, *arguments, code=(2 if refusal else 0))
    assert refusal in done.stderr


def test_help_lists_every_verb(cli):
    text = cli("--help").out
    assert "tfx-estimator run digits" in text
    for verb in VERBS:
        # argparse puts the text of a long name on the next line.
        assert re.search(rf"^    {verb}\s", text, re.MULTILINE), verb


def test_every_verb_is_a_module_and_every_module_a_verb():
    files = {file.stem for file in (ROOT / "pipeline" / "commands").glob("*.py")}
    assert set(VERBS) == files - {"__init__", "shared"}


@pytest.mark.parametrize(
    ("verb", "hint"), [("vaildate", "did you mean `validate`?"), ("qqqq", "see tfx-estimator --help")]
)
def test_an_unknown_verb_is_refused_with_the_nearest(cli, verb, hint):
    text = cli(verb, code=2).err
    assert f"there is no verb '{verb}'" in text
    assert hint in text


@pytest.mark.parametrize(
    "arguments", [["validate"], ["validate", "mnist", "--sett", "a=1"], ["--nothing"], ["copy", "mnist"]]
)
def test_wrong_arguments_end_with_usage(cli, arguments):
    assert "usage: tfx-estimator" in cli(*arguments, code=2).err


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["compile", "digits", "--target", "vertex"], 0),
        (["submit", "digits"], 0),
        (["estimate", "digits"], 0),
        (["report", "runs/digits"], 0),
        (["validate", "digits", "--deep"], 0),
        # It opens no data, and is done at once.
        (["validate", "digits"], 1),
    ],
)
def test_verbs_that_open_data_leave_no_temporary_files(tmp_path, monkeypatch, arguments, left):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def leave(args: object) -> int:
        return 5 if Path(tempfile.mkdtemp("tfds")).is_relative_to(os.environ["TMPDIR"]) else 1

    monkeypatch.setattr(f"tfx_estimator.pipeline.commands.{arguments[0]}.run", leave)
    assert main(arguments) == 5
    assert len([*tmp_path.iterdir()]) == left


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            TrainingError("it broke", expected="no break", todo="mend it"),
            5,
            "it broke\n  expected: no break\n  to do:    mend",
        ),
        (TfxEstimatorError("odd"), 1, "tfx-estimator: odd\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_messages_and_exit_codes(cli, monkeypatch, error, code, text):
    def fail(arguments: list[str], alone: bool) -> int:
        raise error

    monkeypatch.setattr(command_line, "_dispatch", fail)
    found = cli("run", "digits", code=code)
    assert text in found.err
    assert not found.out


def test_a_process_shows_a_bad_declaration_without_a_traceback_even_without_utf8(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: größe\ntrainer: {train_steps: yes}\n", encoding="utf-8")
    done = run_python("-m", "tfx_estimator", "validate", "mine.yaml", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (2, "")
    assert "4 problems" in done.stderr
    assert "gr\\xf6\\xdfe" in done.stderr
    assert "mine.yaml:2  trainer.train_steps: true" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tfx_estimator", "schema"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_ends_with_130(tmp_path):
    code = (
        "import time, sys; from tfx_estimator import __main__ as m;"
        "m._dispatch = lambda a, alone: (print('ready', flush=True), time.sleep(60));"
        "sys.exit(m.main([]))"
    )
    with start_python("-c", code) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, text = child.communicate(timeout=30)
    assert child.returncode == 130
    assert text == "tfx-estimator: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "option", "given", "text"),
    [
        (["run", "digits", "--workdir"], "--workdir", "hdfs://node/runs", "the object stores"),
        (["execute", "mine.json", "--root"], "--root", "hdfs://node/runs", "the object stores"),
        ([*BENCH, "--workdir"], "--workdir", "gs://bucket/x.yaml", "this is an address"),
        ([*BENCH, "--output"], "--output", "gs://bucket/x.yaml", "this is an address"),
        (["copy", "digits"], "FILE", "gs://bucket/x.yaml", "this is an address"),
        (["schema"], "FILE", "gs://bucket/x.yaml", "this is an address"),
        (["run", "digits", "--workdir"], "--workdir", "", "it names no folder"),
        (["run", "digits", "--workdir"], "--workdir", "exp[1]/runs", "holds `[`, a wildcard"),
        (["run", "digits", "--workdir"], "--workdir", "file", "this is no folder"),
        (["run", "digits", "--workdir"], "--workdir", "file/runs", "file is no folder"),
        ([*BENCH, "--workdir"], "--workdir", "", "it names no folder"),
        (["compare", "digits", "--vary", "seed=1,2", "--workdir"], "--workdir", "", "it names no folder"),
        (["execute", "mine.json", "--root"], "--root", "", "it names no folder"),
    ],
)
def test_a_wrong_path_is_refused_before_anything_is_written(tmp_path, monkeypatch, cli, arguments, option, given, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    loaded = set(sys.modules)
    assert re.search(f"{re.escape(f'{option} {given}')}: .*{re.escape(text)}", cli(*arguments, given, code=2).err)
    assert not {name for name in set(sys.modules) - loaded if name.startswith("tensorflow")}
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("run", ["digits", "--workdir"]),
        ("bench", ["strategies", "digits", "--workdir"]),
        ("compare", ["digits", "--workdir"]),
        ("doctor", ["--workdir"]),
        ("execute", ["mine.json", "--root"]),
    ],
)
def test_a_work_folder_may_be_named_from_the_home_folder(monkeypatch, verb, arguments):
    monkeypatch.setenv("HOME", "/home/somebody")
    args = command_line.make_parser().parse_args([verb, *arguments[:-1], f"{arguments[-1]}=~/runs"])
    assert getattr(args, arguments[-1].lstrip("-")) == "/home/somebody/runs"


@pytest.mark.parametrize("verb", ["compile", "submit", "validate"])
def test_a_platform_without_a_compiler_has_its_page_of_the_docs(verb, cli):
    for name in OTHERS:
        (page,) = re.findall(r"see (docs/\S+)$", cli(verb, "digits", "--target", name, code=2).err, re.MULTILINE)
        assert f"## {name}\n" in (ROOT / page).read_text().lower()
