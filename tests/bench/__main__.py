"""`python -m tests.bench [--only NAME] [--rounds N]`: measures, prints a table, writes bench-results/*.json."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from rich.console import Console

from tests.bench.measure import ROOT
from tests.bench.report import Ratio, show, show_nodes
from tests.bench.suites import SUITES, Setting, per_node

_DATA = ROOT.parent / "shared" / "data" / "tfds"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=sorted(SUITES), action="append", help="may be given more than once")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side, alternated (default: 3)")
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("TFX_ESTIMATOR_REAL_DATA") or (str(_DATA) if _DATA.is_dir() else None),
        help="TFDS data_dir with MNIST (default: TFDS's own, which downloads)",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results", help="folder of results and inputs")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    arguments.output.mkdir(parents=True, exist_ok=True)

    def log(line: str) -> None:
        console.print(f"[dim]{line}[/dim]", highlight=False)

    setting = Setting(str(arguments.output / "inputs"), arguments.data_dir, arguments.rounds, log)
    ratios: list[Ratio] = []
    results: dict[str, object] = {}
    for name in arguments.only or SUITES:
        found, values = SUITES[name](setting)
        ratios += found
        results[name] = {"ratios": [ratio.to_dict() for ratio in found], "rounds": values}
        if name == "pipeline":
            show_nodes(per_node(values["tfx_example"]), per_node(values["ours"]), console)
        show(found, console)
    if len(results) > 1:
        show(ratios, console)
    now = datetime.datetime.now(datetime.timezone.utc)
    path = arguments.output / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"when": now.isoformat(), "machine": _machine(), **results}, indent=1))
    console.print(f"written to {path}")
    return 0 if all(ratio.passed for ratio in ratios) else 1


def _machine() -> dict[str, object]:
    versions = {name: metadata.version(name) for name in ("tensorflow", "tfx", "apache-beam", "tensorflow-datasets")}
    return {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(), **versions}


if __name__ == "__main__":
    sys.exit(main())
