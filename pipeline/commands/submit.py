"""`tfx-estimator submit`: compiles the declared pipeline, and starts it on a service."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Optional

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_declaration, add_target
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, BY_NAME, TITLES

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Loaded
    from tfx_estimator.pipeline.platforms.follow import JobStatus, Service, Started
    from tfx_estimator.pipeline.platforms.note import Note
    from tfx_estimator.pipeline.runners.compiling import Compiled

HELP = f"compile the declared pipeline, and start it on {TITLES}"
EPILOG = f"""\
It shows what will run where, asks, submits, and writes the address to FOLDER/submission.json. Submitting again finds
the same job, and does not start it twice. --dry-run needs no account or network, unless data.data_dir is an address.

  tfx-estimator submit mine.yaml --target {ALL_TARGETS[0]} --dry-run
  tfx-estimator submit mine.yaml --target {ALL_TARGETS[0]} --follow
  tfx-estimator submit --attach submitted/mine
  tfx-estimator submit --cancel submitted/mine
"""
_DIGITS = 10
# Options for the place of submission.
_PLACES = ("endpoint", "experiment", "context", "namespace")
# The service's state of a step -> ours; and the steps whose outputs the table of results shows.
_STATES = {"SUCCEEDED": "ran", "SKIPPED": "cached"}
_SHOWN = frozenset({"TfdsExampleGen", "Tuner", "Trainer", "Evaluator", "Pusher"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser, nargs="*")
    add_target(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, and submit nothing")
    parser.add_argument("--follow", action="store_true", help="show the job's steps, and end with its result")
    parser.add_argument("--again", action="store_true", help="start the job again even if the same one has succeeded")
    parser.add_argument("--attach", metavar="JOB", help="follow a submitted job: its FOLDER")
    parser.add_argument("--cancel", metavar="JOB", help="cancel a submitted job: its FOLDER")
    parser.add_argument(
        "--folder", metavar="FOLDER", help="for the compiled file, the address and logs (default: submitted/NAME)"
    )
    parser.add_argument(
        "--runs",
        metavar="DIR",
        default="runs",
        help="folder of runs on this machine, whose speed gives the estimate of the hours (default: %(default)s)",
    )
    parser.add_argument(
        "--modules-there", action="store_true", help="your own modules are already where the steps import them"
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="the service's URL (default: through the Kubernetes API server)"
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--namespace",
        help="of the service, or of its pods; with --endpoint that of the experiment (default: the usual one)",
    )
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        help="the run's experiment, made if missing; a multi-user service needs it, and --namespace",
    )
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Submits a pipeline; or follows or cancels a submitted job."""
    from tfx_estimator.pipeline.base.errors import DeclarationError

    submitted = args.attach or args.cancel
    if submitted and (unused := _unused_options(args)):
        raise DeclarationError(
            f"--attach and --cancel take a submitted job, and do not use {unused}",
            expected="one of them, without SOURCE and other options; --attach --follow and --yes are allowed",
            todo=f"to follow it: {_command('--attach', submitted)}; to end it: {_command('--cancel', submitted)}",
        )
    if submitted:
        return _attach(args.attach) if args.attach else _cancel(args.cancel)
    if not args.source or not args.target:
        raise DeclarationError(
            "SOURCE or --target is missing",
            expected=f"SOURCE and --target {' | '.join(ALL_TARGETS)}",
            todo="see tfx-estimator submit --help",
        )
    for option in _PLACES:
        if getattr(args, option) is not None and option not in BY_NAME[args.target].options:
            raise DeclarationError(
                f"the target {args.target} has no --{option}",
                expected=f"it with {', '.join(each.name for each in BY_NAME.values() if option in each.options)}",
                todo="remove it",
            )
    if not (args.yes or args.dry_run or sys.stdin.isatty()):
        raise DeclarationError(
            "submit asks before it starts anything, and stdin is not a terminal",
            expected="a terminal, or --yes",
            todo="add --yes, or --dry-run to see only the plan",
        )
    return _submit(args)


def _unused_options(args: argparse.Namespace) -> str:
    """Returns the given options that --attach or --cancel do not use."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    useful = {"yes", "attach", "follow"} if args.attach else {"yes", "cancel"}
    words = {"source": "SOURCE", "overrides": "--set"}
    defaults = vars(parser.parse_args([]))
    unused = [name for name in defaults if name not in useful and getattr(args, name) != defaults[name]]
    return ", ".join(words.get(name, f"--{name.replace('_', '-')}") for name in unused)


def _submit(args: argparse.Namespace) -> int:
    from tfx_estimator.pipeline.base.ending.signals import SignalledError
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.deploy import DeploySection
    from tfx_estimator.pipeline.platforms.follow import START_SECONDS, with_retries
    from tfx_estimator.pipeline.platforms.note import leave_note, with_job
    from tfx_estimator.pipeline.platforms.services import service_of
    from tfx_estimator.pipeline.run.terminal import quiet

    loaded = load(args.source, [*args.overrides, *_as_overrides(args)], args.target)
    platform = BY_NAME[args.target]
    declaration, deploy = loaded.declaration, loaded.declaration.deploy or DeploySection()
    module = service_of(args.target)
    note = module.place_of(deploy, args.target, **{option: getattr(args, option) for option in _PLACES})
    folder = args.folder or os.path.join("submitted", declaration.name)
    if not args.dry_run:
        # Missing credentials are reported before the seconds that compiling takes.
        with_retries(lambda: module.connect(note, folder), _show, START_SECONDS).close()
    with quiet(os.devnull):  # hides what TensorFlow and others print on import
        from tfx_estimator.pipeline.runners.compiling import compile_declaration

        compiled = compile_declaration(loaded, args.target)
    for line in _plan(loaded, compiled, note, args.runs):
        say(one_line(line))
    for remark in loaded.remarks:
        say(remark, to_stderr=True)
    if args.dry_run:
        say("nothing was submitted: --dry-run")
        return 0
    if not (args.yes or _agrees(f"submit {declaration.name} to {args.target}? [y/N] ")):
        say("nothing was submitted")
        return 0
    folder = _write(folder, compiled, platform.file)
    # Not every compiled file contains the service account, so it is added to the digest.
    contents = f"{compiled.text}{deploy.service_account or ''}"
    digest = hashlib.sha256(contents.encode()).hexdigest()[:_DIGITS]
    about = (compiled.text, declaration.name, digest, deploy.service_account)
    with contextlib.closing(
        with_retries(lambda: module.connect(note, folder, *about), _show, START_SECONDS)
    ) as service:
        if not args.modules_there:
            from tfx_estimator.pipeline.runners.compiling import upload

            for place in upload(compiled, folder, deploy.pipeline_root or ""):
                say(f"copied your own modules to {one_line(place)}")
        started: Optional[Started] = None
        try:
            started = with_retries(lambda: service.start(args.again), _show, START_SECONDS)
            note = with_job(note, service, started.job)
            former = leave_note(folder, note)
        except (SignalledError, TfxEstimatorError) as error:
            _report_unrecorded(declaration.name, started, isinstance(error, SignalledError))
            raise
        if started.is_new:
            say(f"submitted {one_line(started.job)}")
        else:
            say(f"the same job exists, and is not started again: {one_line(started.job)}: {started.state}")
        say(f"    address: {one_line(note.address)}")
        if former:
            say(f"    if the former job {one_line(former[0])} still runs, cancel it: {_command('--cancel', former[1])}")
        if not args.follow:
            say(f"    follow it: {_command('--attach', folder)}")
            say(f"    cancel it: {_command('--cancel', folder)}")
            return 0
        return _follow(service, note, folder)


def _report_unrecorded(name: str, started: Optional[Started], is_stopped: bool) -> None:
    """Says that a job without submission.json may exist; the service finds it by its name, a digest of its contents."""
    from tfx_estimator.pipeline.commands.shared import say

    again = "the same command, unchanged, finds it, and does not start it twice"
    if started is not None:
        say(f"{one_line(started.job)} was started, but not recorded: {again}", to_stderr=True)
    elif is_stopped:
        say(f"{name} may have been started: {again}", to_stderr=True)


def _as_overrides(args: argparse.Namespace) -> list[str]:
    """Returns the options that are also keys of the declaration, as overrides."""
    keys = BY_NAME[args.target].options
    values = {key: getattr(args, option) for option, key in keys.items() if key}
    return [f"{key}={json.dumps(value)}" for key, value in values.items() if value]


def _agrees(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _plan(loaded: Loaded, compiled: Compiled, note: Note, runs: str) -> list[str]:
    from tfx_estimator.pipeline.config.deploy import DeploySection
    from tfx_estimator.pipeline.platforms.plan import estimate_hours, lines, read_plan
    from tfx_estimator.pipeline.platforms.services import service_of

    declaration, deploy = loaded.declaration, loaded.declaration.deploy or DeploySection()
    more = {
        "service": f"{note.target}, {service_of(note.target).where(note)}",
        "workdir": deploy.pipeline_root or "",
        "account": deploy.service_account or "the service's default",
        "time": estimate_hours(declaration, runs),
    }
    if compiled.modules:
        more["modules"] = f"{', '.join(packed.name for packed in compiled.modules)}, to {compiled.modules_uri}"
    return [f"{declaration.name}:", *lines(read_plan(compiled.text, note.target), more), ""]


def _write(folder: str, compiled: Compiled, file: str) -> str:
    """Writes the compiled pipeline; returns the folder."""
    from tfx_estimator.pipeline.base.files import write_whole, writing
    from tfx_estimator.pipeline.config.paths import reject_address

    reject_address(folder, "--folder")
    folder = os.path.expanduser(folder)
    with writing(folder):
        os.makedirs(folder, exist_ok=True)
        write_whole(os.path.join(folder, f"pipeline{os.path.splitext(file)[1]}"), compiled.text)
    return folder


def _attach(named: str) -> int:
    service, note = _find_submitted(named, _again(named))
    with contextlib.closing(service):
        return _follow(service, note, named, known=False)


def _cancel(named: str) -> int:
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.platforms.follow import RESUMES, START_SECONDS, with_retries

    service, note = _find_submitted(named)
    with contextlib.closing(service):
        look = with_retries(lambda: service.status(note.job), _show, START_SECONDS)
        if look.is_gone and look.error:
            raise look.error
        if look.ended:
            say(f"{one_line(note.job)} has ended already: {one_line(look.state)}")
            return 0
        with_retries(lambda: service.cancel(note.job), _show, START_SECONDS)
    say(f"requested the cancellation of {one_line(note.job)}")
    say(f"    {RESUMES}")
    return 0


def _find_submitted(named: str, again: str = "") -> tuple[Service, Note]:
    """Returns the service of a submitted job, and its note; `again` as of `Retries`."""
    from tfx_estimator.pipeline.platforms.follow import FOLLOW_SECONDS, START_SECONDS, with_retries
    from tfx_estimator.pipeline.platforms.note import find_note
    from tfx_estimator.pipeline.platforms.services import service_of

    note = find_note(named)
    path = os.path.expanduser(named)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    module = service_of(note.target)
    seconds = FOLLOW_SECONDS if again else START_SECONDS
    service = with_retries(lambda: module.connect(note, folder), _show, seconds, again=again, known=False)
    return service, note


def _follow(service: Service, note: Note, named: str, known: bool = True) -> int:
    """Follows a job, named by its folder, or as `find_note` takes it; `known` as of `Retries`."""
    from tfx_estimator.pipeline.base.ending.signals import SignalledError
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.platforms.follow import follow

    # A job that the user named has no recorded address; the service knows it.
    address = note.address or service.address(note.job)
    try:
        look = follow(service, note.job, _show, again=_again(named), known=known)
    except SignalledError:
        say(f"the job {one_line(note.job)} continues", to_stderr=True)
        say(f"    follow it: {_command('--attach', named)}", to_stderr=True)
        say(f"    cancel it: {_command('--cancel', named)}", to_stderr=True)
        raise
    except TfxEstimatorError:
        say(f"    address: {one_line(address)}", to_stderr=True)
        raise
    say(f"{one_line(note.job)}: {look.state}")
    if look.outputs:
        try:
            _show_results(look, note.job, address)
        except Exception as error:  # must not hide that the job has succeeded
            _show(f"its results cannot be shown: {error or type(error).__name__}", True)
    elif BY_NAME[note.target].hides_results:
        say(f"    accuracy, blessing and what was pushed: see the artifacts of its steps: {one_line(address)}")
    return 0


def _show_results(look: JobStatus, job: str, address: str) -> None:
    """Prints the results of a job that has outputs of this project's steps."""
    import tempfile

    from tfx_estimator.pipeline.report.artifacts import outputs_from_json
    from tfx_estimator.pipeline.run.results import add_readable_outputs
    from tfx_estimator.pipeline.run.summary import Summary, Warned
    from tfx_estimator.pipeline.run.table import print_table
    from tfx_estimator.pipeline.run.terminal import make_console, quiet
    from tfx_estimator.pipeline.runners.listener import NodeRun

    if not _SHOWN & look.outputs.keys():
        return
    results = Summary(job, job)
    results.components = [
        NodeRun(task, _STATES.get(state, "resolved"), 0.0, None)
        for task, state in look.tasks.items()
        if task in look.outputs
    ]
    # Hides what TensorFlow prints on import.
    with tempfile.TemporaryDirectory() as folder, quiet(os.path.join(folder, "log")) as terminal:
        unreadable = add_readable_outputs(results, outputs_from_json(look.outputs))
        results.warnings += [Warned("", line) for line in unreadable]
        results.seconds = look.seconds
        # A closed pipe is not a failure.
        with contextlib.suppress(BrokenPipeError):
            print_table(make_console(terminal), results, address, asynchronous=False)


def _show(line: str, is_warning: bool) -> None:
    from tfx_estimator.pipeline.commands.shared import say

    say(f"warning: {one_line(line)}" if is_warning else one_line(line), to_stderr=is_warning)


def _again(named: str) -> str:
    return f"follow it again: {_command('--attach', named)}"


def _command(option: str, folder: str) -> str:
    return f"tfx-estimator submit {option} {shlex.quote(folder)}"
