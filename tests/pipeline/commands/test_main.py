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

from tests.root import ROOT
from tfx_estimator import __main__ as command_line
from tfx_estimator.__main__ import VERBS, main
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS

pytestmark = pytest.mark.unit

DEPLOYED = (
    *("--set", f"deploy.image=europe-docker.pkg.dev/example/tfx/estimator@sha256:{'0' * 64}"),
    *("--set", "deploy.project=example-project", "--set", "deploy.region=europe-west4"),
    *("--set", "deploy.pipeline_root=gs://example-bucket/pipelines"),
)
# As this Python's argparse lists them.
TARGETS = ", ".join(map(str if sys.version_info >= (3, 12) else repr, ALL_TARGETS))
HEAVY = ("tensorflow", "tfx", "apache_beam", "numpy", "pandas", "tensorflow_datasets", "tensorflow_transform", "rich")


def start(*arguments: str, cwd: Path = ROOT, **options) -> subprocess.CompletedProcess:
    """Runs the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tfx_estimator", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, **options)


def start_shell(command: str) -> subprocess.CompletedProcess:
    """Runs a line of a shell."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    options = {"capture_output": True, "text": True, "timeout": 60}
    return subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, **options)


@pytest.mark.parametrize(
    ("arguments", "most"),
    [(["--help"], 190), (["run", "--help"], 190), (["validate", "mnist"], 360), (["show", "digits"], 360)],
)
def test_light_verbs_answer_at_once(arguments, most):
    # Their time is that of their imports, about a millisecond a module; a count is the same on every machine.
    code = (
        "import sys\n"
        "from tfx_estimator.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(len(sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr) <= most


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["validate", "mnist"],
        ["show", "digits"],
        ["presets"],
        ["schema"],
        *[[verb, "--help"] for verb in VERBS],
    ],
)
def test_light_verbs_import_nothing_heavy(arguments):
    code = (
        "import sys; from tfx_estimator.__main__ import main; code = main(sys.argv[1:]);"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]; assert not found, found; sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "tfx-estimator run digits" in text
    for verb in VERBS:
        # argparse puts the text beside a long name on a line of its own.
        assert re.search(rf"^    {verb}\s", text, re.MULTILINE), verb


def test_every_verb_is_a_module_and_every_module_a_verb():
    files = {file.stem for file in (ROOT / "pipeline" / "commands").glob("*.py")}
    assert set(VERBS) == files - {"__init__", "arguments", "output"}


def test_no_verb_shows_the_help(capsys):
    assert main([]) == 2
    assert "usage: tfx-estimator" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "hint"), [("vaildate", "did you mean `validate`?"), ("qqqq", "see tfx-estimator --help")]
)
def test_an_unknown_verb_is_refused_with_the_nearest(capsys, verb, hint):
    assert main([verb]) == 2
    text = capsys.readouterr().err
    assert f"there is no verb '{verb}'" in text
    assert hint in text


@pytest.mark.parametrize(
    "arguments", [["validate"], ["validate", "mnist", "--sett", "a=1"], ["--nothing"], ["copy", "mnist"]]
)
def test_wrong_arguments_end_with_usage(capsys, arguments):
    assert main(arguments) == 2
    assert "usage: tfx-estimator" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compile", "digits", "--target", "vertx"], f"{TARGETS}); did you mean vertex?"),
        (["validate", "digits", "--target", "qqqq"], f"{TARGETS})"),
        (
            ["run", "digits", "--work_dir=a"],
            "run: error: unrecognized arguments: --work_dir=a; did you mean --workdir?",
        ),
        (["validate", "mnist", "--sett", "a=1"], "error: unrecognized arguments: --sett a=1; did you mean --set?"),
        (["--vesion"], "error: unrecognized arguments: --vesion; did you mean --version?"),
        (["presets", "--qqqq"], "error: unrecognized arguments: --qqqq"),
    ],
)
def test_a_mistyped_option_or_choice_is_refused_with_the_nearest(capsys, arguments, said):
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(f"{said}\n")


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
def test_what_opens_data_leaves_no_temporary_files(tmp_path, monkeypatch, arguments, left):
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
def test_errors_become_messages_and_exit_codes(capsys, monkeypatch, error, code, text):
    def fail(arguments: list[str], alone: bool) -> int:
        raise error

    monkeypatch.setattr(command_line, "_dispatch", fail)
    assert main(["run", "digits"]) == code
    found = capsys.readouterr()
    assert text in found.err
    assert not found.out


def test_a_process_shows_a_bad_declaration_without_a_traceback(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\ntrainer: {train_steps: yes}\n")
    done = start("validate", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "3 problems" in done.stderr
    assert "mine.yaml:2  trainer.train_steps: true" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tfx_estimator", "schema"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize(("closed", "code"), [((1,), 0), ((2,), 0), ((0, 1, 2), 0), ((1, 2), 2)])
def test_a_stream_that_is_closed_from_the_start_is_no_error(closed, code):
    arguments = ["validate", "mnist" if code == 0 else "nothing"]
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    done = start_shell(f"{sys.executable} -m tfx_estimator {' '.join(arguments)} {redirections}")
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.startswith("ok: mnist") is (1 not in closed)


def test_an_error_that_nobody_reads_keeps_its_exit_code():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tfx_estimator", "show", "nothing"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_terminal_without_utf8_gets_the_message_too(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: größe\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "tfx_estimator", "validate", "mine.yaml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"gr\\xf6\\xdfe" in done.stderr


def test_ctrl_c_ends_with_130(tmp_path):
    code = (
        "import time, sys; from tfx_estimator import __main__ as m;"
        "m._dispatch = lambda a, alone: (print('ready', flush=True), time.sleep(60));"
        "sys.exit(m.main([]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, text = child.communicate(timeout=30)
    assert child.returncode == 130
    assert text == "tfx-estimator: interrupted\n"


@pytest.mark.parametrize("scheme", ["s3", "hdfs", "file"])
@pytest.mark.parametrize("arguments", [["run", "digits", "--workdir"], ["execute", "mine.json", "--root"]])
def test_only_googles_store_is_taken(tmp_path, monkeypatch, capsys, arguments, scheme):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, f"{scheme}://bucket/runs"]) == 2
    said = capsys.readouterr().err
    assert f"{arguments[-1]} {scheme}://bucket/runs: of all object stores, TensorFlow reads and writes only" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["gs", "s3", "hdfs", "file"])
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["bench", "strategies", "digits", "--workdir"], "--workdir"),
        (["bench", "strategies", "digits", "--output"], "--output"),
        (["copy", "digits"], "FILE"),
        (["schema"], "FILE"),
    ],
)
def test_object_storage_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, arguments, option, scheme):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, f"{scheme}://bucket/x.yaml"]) == 2
    said = capsys.readouterr().err
    assert f"{option} {scheme}://bucket/x.yaml: this is an address" in said
    assert f"name a path for {option}" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "stream", "code"),
    [
        ("show mnist", 1, 1),
        ("validate mnist", 1, 1),
        ("--help", 1, 1),
        ("presets", 1, 1),
        ("run nope --json", 1, 2),
        ("validate nope", 2, 2),
        ("show nope", 2, 2),
        ("show --nope", 2, 2),
    ],
)
def test_what_cannot_be_written_is_told_and_hides_no_exit_code(arguments, stream, code):
    # Without a buffer argparse itself meets the error, and from Python 3.12 on passes over it.
    python = f"env -u PYTHONUNBUFFERED {sys.executable}"
    done = start_shell(f"{python} -m tfx_estimator {arguments} {stream}>/dev/full")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("stdout cannot be written: No space left on device" in done.stderr) is (code == 1)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["run", "digits", "--workdir"], "--workdir"),
        (["bench", "strategies", "digits", "--workdir"], "--workdir"),
        (["compare", "digits", "--vary", "seed=1,2", "--workdir"], "--workdir"),
        (["execute", "mine.json", "--root"], "--root"),
        (["compile", "digits", "--target", "vertex", *DEPLOYED, "--output"], ""),
    ],
)
def test_an_empty_name_is_refused(tmp_path, monkeypatch, capsys, arguments, option):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, ""]) == 2
    said = capsys.readouterr().err
    assert (f"{option} : it names no folder" if option else "is no file's name") in said
    assert list(tmp_path.iterdir()) == []


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
