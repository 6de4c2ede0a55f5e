"""`tfx-estimator bench strategies`: measures which distribution strategy pays for a declaration on this machine."""

from __future__ import annotations

import argparse
import dataclasses

from tfx_estimator.pipeline.commands.shared import add_declaration, add_workdir

HELP = "measure which distribution strategy pays"
_STRATEGIES_HELP = "train a declaration for some steps under each strategy, and compare"
_EPILOG = """\
one_core, one process on one core, is always measured: efficiencies refer to it. A count is a number of devices
(mirrored, central_storage) or of workers (multi_worker_mirrored, parameter_server), each on a core of its own.
With --device gpu each has a GPU of its own, and efficiencies refer to one_device, which is one GPU.

  tfx-estimator bench strategies cifar10 --strategies one_device,multi_worker_mirrored:2
  tfx-estimator bench strategies cifar10 --strategies one_device --paths estimator,keras
  tfx-estimator bench strategies cifar10 --device gpu --strategies mirrored:4 --vary precision=float32,mixed_bfloat16
  tfx-estimator bench strategies cifar10 --vary optimizer.name=momentum,adam --vary global_batch_size=64,256

Choose enough --steps for a measurement to last some seconds. Close other programs that use the machine.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what can be measured, and its arguments."""
    strategies = parser.add_subparsers(dest="what", metavar="WHAT", required=True).add_parser(
        "strategies",
        help=_STRATEGIES_HELP,
        description=f"{_STRATEGIES_HELP[:1].upper()}{_STRATEGIES_HELP[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_declaration(strategies)
    strategies.add_argument(
        "--strategies",
        metavar="A,B,…",
        default="all",
        help="names with a count: mirrored:2,parameter_server:4; or all, with a count of 2 (default: %(default)s)",
    )
    strategies.add_argument(
        "--paths",
        metavar="P,Q,…",
        default="",
        help="estimator, keras, keras_custom_loop: train with each strategy on each of them (default: trainer.path)",
    )
    strategies.add_argument(
        "--vary",
        metavar="KEY=V,W,…",
        action="append",
        default=[],
        help="train with each strategy under each value of an entry of `trainer`, or of another dotted path: "
        "--vary steps_per_execution=1,20; several --vary give each combination",
    )
    strategies.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="train on CPU cores or on GPUs; counts are numbers of these (default: %(default)s)",
    )
    for option, default, text in (
        ("--steps", 200, "measured steps"),
        ("--warmup", 20, "steps before the measured ones, once every worker takes part"),
        ("--rounds", 3, "how often each strategy is measured, in turns"),
    ):
        strategies.add_argument(option, type=int, metavar="N", default=default, help=f"{text} (default: %(default)s)")
    strategies.add_argument(
        "--input-share",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also measure each strategy on a batch that stays in memory, to tell the cost of the input",
    )
    add_workdir(strategies, "where the inputs are kept")
    strategies.add_argument(
        "--output",
        metavar="DIR",
        help="where strategies.json, .png and .html go (default: a new folder under the workdir)",
    )


def run(args: argparse.Namespace) -> int:
    """Loads the declaration, checks the options, and measures."""
    from tfx_estimator.pipeline.config.paths import check_output, check_workdir
    from tfx_estimator.pipeline.experiments.bench.strategies import FILES, Plan, choose, parse_contenders

    contenders = parse_contenders(args.strategies, args.paths, args.vary, args.device)
    plan = Plan(contenders, args.steps, args.warmup, args.rounds, args.input_share)
    plan.check()
    choice = choose(contenders, args.source, args.overrides)
    plan = dataclasses.replace(plan, contenders=choice.contenders)
    check_workdir(args.workdir)
    output = check_output(args.output, FILES) if args.output is not None else None

    from tfx_estimator.pipeline.experiments.bench.session import bench_strategies

    return bench_strategies(choice, plan, args.workdir, output)
