"""Every command on a page is valid: it is parsed, its declaration is loaded, and quick ones are run."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import tfx_estimator
from tests.docs.pages import Page
from tests.root import ROOT
from tfx_estimator.__main__ import VERBS, main, make_parser
from tfx_estimator.estimator import make_parser as make_runner
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.stack.stacks import STACKS
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.rehearsal.job import read_job

PROGRAM = "tfx-estimator"
# They start real pipelines, or need their outputs; tests/e2e and tests/pipeline/commands run these.
SLOW = ("run", "predict", "serve", "report", "runs", "convert", "compare", "bench", "doctor", "execute", "adapt")
# Of Debian's package dataset-fashion-mnist, which may be missing here.
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def commands(page: Page) -> Iterator[list[str]]:
    """Returns the words of each command in the shell blocks, without comments."""
    for block in page.of("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def check_command(words: list[str], folder: Path, exported: list[str]) -> None:
    """Fails if a command is invalid in a folder with the page's files."""
    if words[0] == "srun":
        words = words[words.index(PROGRAM) :]
    if ">" in words:
        words, (written,) = words[: words.index(">")], words[words.index(">") + 1 :]
        (folder / written).touch()
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        check_variable(words[0].partition("=")[0])
        words = words[1:]
    program = Path(words[0]).name
    if words[1:2] == ["-m"] and words[2].startswith(("tfx_estimator.", "tests.")):
        assert importlib.util.find_spec(words[2]), f"there is no {words[2]}"
    elif program == PROGRAM:
        check_ours(words[1:], folder)
    elif program == "make":
        check_make(words[1:])
    elif program == "export":
        name, _, value = words[1].partition("=")
        check_variable(name)
        exported.append(name)
        if name == "TFX_ESTIMATOR_DECLARATION":
            load(value)
    elif program == "tfx":
        options = dict(zip(words[3::2], words[4::2]))
        assert options["--engine"] in ("local", "vertex")
        if "--pipeline_path" in options:
            # Written by a command before it.
            script = (folder / options["--pipeline_path"]).read_text(encoding="utf-8")
            # Variables are for the script, or for nothing.
            assert not [name for name in exported if f'"{name}"' not in script], "the script reads no such variable"
        else:
            names = [yaml.safe_load(path.read_text())["name"] for path in folder.glob("*.yaml")]
            assert options["--pipeline_name"] in names
    elif program == "pip":
        for option, value in itertools.pairwise(words):
            if option in ("-r", "-c", "-e"):
                assert (ROOT / value).exists() or (folder / value).exists(), f"there is no {value}"
        for wheel in (word for word in words if ".whl" in word):
            extra = wheel.partition(".whl")[2].strip("[]")
            assert Path(wheel).name.startswith(f"tfx_estimator-{tfx_estimator.__version__}-py3-none-any.whl")
            assert not extra or extra in metadata.metadata("tfx-estimator").get_all("Provides-Extra", [])
    elif program == "docker":
        check_docker(words[1:], folder)
    elif program in ("jupyter", "pytest"):
        assert list((ROOT / "examples").glob(f"*/{words[-1]}"))
    else:
        assert words[1:] == ["-m", "venv", ".venv"], "the tests do not know how to check this command"
        version = tuple(map(int, words[0].removeprefix("python").split(".")))
        assert any(stack.has_python(version) for stack in STACKS)


def test_completion_is_written_into_a_fresh_home(tmp_path):
    (block,) = [block.text for block in Page(ROOT / "docs" / "install.md").blocks if "shtab" in block.text]
    for program in ("pip", "shtab"):
        (tmp_path / program).write_text("#!/bin/sh\necho $*\n")
        (tmp_path / program).chmod(0o755)
    (home := tmp_path / "home").mkdir()
    environment = {**os.environ, "HOME": str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", block], check=True, env=environment, capture_output=True)
    for file in (".local/share/bash-completion/completions/tfx-estimator", ".zfunc/_tfx-estimator"):
        assert "make_parser" in (home / file).read_text()


def check_ours(arguments: list[str], folder: Path) -> None:
    """Parses one of our command lines, loads its declarations, and runs it if it is quick."""
    if not os.path.isdir(FASHION_MNIST):
        (folder / "fashion-mnist").mkdir(exist_ok=True)
        arguments = [each.replace(FASHION_MNIST, "fashion-mnist") for each in arguments]
    args = make_parser().parse_args(arguments)
    if args.verb not in SLOW:
        if args.verb in ("copy", "schema") and args.file:
            (folder / args.file).unlink(missing_ok=True)
        assert main(arguments) == 0
        return
    if args.verb == "convert":
        # The next command runs it.
        (folder / args.output).mkdir(exist_ok=True)
        (folder / args.output / "new.yaml").write_text(presets.path("digits").read_text())
    if args.verb in ("predict", "serve", "report", "runs", "convert", "doctor", "adapt"):
        return
    if args.verb == "execute":
        # Written by a command before it.
        assert read_job(str(folder / args.file)).tasks
        return
    if args.verb == "compare":
        from tfx_estimator.pipeline.experiments.compare.candidates import find_candidates

        if not args.source[0].startswith("runs/"):
            assert len(find_candidates(args.source, args.overrides, args.vary)) > 1
        return
    load(args.source, args.overrides)
    if args.verb == "bench":
        from tfx_estimator.pipeline.experiments.bench.strategies import Plan, choose, parse_contenders

        contenders = parse_contenders(args.strategies, args.paths, args.vary)
        Plan(contenders, args.steps, args.warmup, args.rounds, args.input_share).check()
        refused = choose(contenders, args.source, args.overrides).refused
        # One process sends nothing, whatever is varied.
        assert not {name: why for name, why in refused.items() if "trains the same as" not in why}


def check_docker(words: list[str], folder: Path) -> None:
    """Fails if the Dockerfile has no such argument, or the container's command is not ours."""
    if words[0] == "run":
        check_ours(words[words.index(PROGRAM) + 1 :], folder)
    elif words[0] == "build":
        declared = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        given = [value.partition("=")[0] for option, value in itertools.pairwise(words) if option == "--build-arg"]
        assert set(given) <= set(declared)
        assert "BASE" in given
        # The lock files' TensorFlow has no other platform.
        assert ("--platform", "linux/amd64") in itertools.pairwise(words)
        assert words[-1] == "."
    else:
        assert words == ["compose", "up"]
        assert (ROOT / "compose.yaml").is_file()


def check_make(words: list[str]) -> None:
    """Fails if the Makefile has no such target, or does not read such a variable."""
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, is_variable, _ = word.partition("=")
        wanted = rf"\$\((if \$\()?{name}\)" if is_variable else rf"^{name}:.*## "
        assert re.search(wanted, makefile, re.MULTILINE), f"the Makefile has no {name}"


def check_variable(name: str) -> None:
    """Fails if nothing reads an environment variable."""
    readers = [path for place in ("pipeline", "components", "tests") for path in ROOT.glob(f"{place}/**/*.py")]
    assert any(f'"{name}"' in path.read_text(encoding="utf-8") for path in readers), f"nothing reads {name}"


@contextlib.contextmanager
def naming_the_command(page: Page, words: list[str]) -> Iterator[None]:
    """Fails with the command and its page after any error."""
    try:
        yield
    except (Exception, SystemExit) as error:
        pytest.fail(f"{page.name}: {shlex.join(words)}: {error}")


def test_every_command_is_valid(page: Page, folder: Path) -> None:
    exported: list[str] = []
    for words in commands(page):
        with naming_the_command(page, words):
            check_command(words, folder, exported)


def test_the_page_shows_the_output_of_a_command(page: Page, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in page.of("console"):
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = shown.partition("\n")
            program, *arguments = shlex.split(command)
            assert program == PROGRAM
            assert arguments[0] not in SLOW
            main(arguments)
            printed = "".join(capsys.readouterr())
            pattern = ".*".join(map(re.escape, output.strip().split("…")))
            assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{page.name}: {command} prints\n{printed}"


def test_commands_flags_and_variables_in_the_text_exist(page: Page) -> None:
    program = make_parser()
    parsers = next(action.choices for action in program._actions if action.dest == "verb")
    strategies = next(action.choices for action in parsers["bench"]._actions if action.dest == "what")["strategies"]
    flags = {
        flag
        for parser in (program, *parsers.values(), strategies, make_runner())
        for each in parser._actions
        for flag in each.option_strings
    }
    for span in page.spans:
        first, *rest = span.split()
        if first.startswith("--"):
            assert first.partition("=")[0] in flags, f"{page.name}: `{span}`"
        elif first == PROGRAM and rest:
            assert rest[0] in VERBS, f"{page.name}: `{span}`"
        elif first == "docker" and rest and rest[0] == "build":
            check_docker(rest, ROOT)
        elif first == "make" and rest:
            check_make(rest)
        elif re.fullmatch(r"TFX_ESTIMATOR_\w+", first):
            check_variable(first)


def given_in_passing(page: Page) -> Iterator[list[str]]:
    """Returns the words of each of our commands in the text, or in a block that is not run."""
    lines = [line for block in page.of("text") for line in block.text.splitlines()]
    for text in (*page.spans, *lines):
        words = shlex.split(text, comments=True)[1:] if text.startswith(f"{PROGRAM} ") and "…" not in text else []
        if len(words) > 1:
            yield words


def test_a_command_in_the_text_is_valid_with_the_declarations_of_the_page(page: Page, folder: Path) -> None:
    for words in given_in_passing(page):
        with naming_the_command(page, words):
            check_in_passing(words)


def check_in_passing(words: list[str]) -> None:
    """Parses one of our command lines, and loads its declaration for its target."""
    args = make_parser().parse_args(words)
    if isinstance(source := getattr(args, "source", None), str):
        load(source, args.overrides, getattr(args, "target", None) or "")


@pytest.mark.parametrize(
    "command",
    [
        "tfx-estimator run digits --workdirs x",
        "tfx-estimator rnu digits",
        "tfx-estimator run digits --set trainer.train_step=5",
        "tfx-estimator run absent.yaml",
        "tfx-estimator bench strategies digits --strategies mirrord:2",
        "tfx-estimator presets mnits",
        "srun tfx-estimator run absent.yaml",
        "make tests",
        "make test PYTEST_ARG=x",
        "export TFX_ESTIMATOR_DECLARATIONS=digits",
        ".venv/bin/pip install -r requirements/absent.lock",
        "pip install dist/tfx_estimator-0.1.0-py3-none-any.whl",
        "pip install 'dist/tfx_estimator-0.2.0-py3-none-any.whl[lock]'",
        "tfx pipeline create --engine local --pipeline_path pipeline/runners/absent.py",
        "docker build --platform linux/amd64 --build-arg LOCK=tfx1.21.lock .",
        "docker build --platform linux/amd64 --build-arg BASE=debian",
        "docker build --build-arg BASE=debian .",
        "rm -rf .venv",
    ],
)
def test_a_wrong_command_is_found(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((Exception, SystemExit)):
        check_command(shlex.split(command), tmp_path, [])
