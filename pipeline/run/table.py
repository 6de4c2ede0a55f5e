"""What a person sees of a run's results at its end."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table

from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.pipeline.run.view import STYLES


def print_table(console: Console, results: Summary, logs: str, asynchronous: bool) -> None:
    """Prints the results.

    Args:
        console: The terminal.
        results: Of the run.
        logs: Its folder of logs.
        asynchronous: Whether workers train without waiting for each other.
    """
    table = Table(title=None, box=None, pad_edge=False)
    for title, justify in (("component", "left"), ("state", "left"), ("time", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for run in results.components:
        style = STYLES[run.state]
        table.add_row(run.node, f"[{style}]{run.state}[/{style}]", f"{run.seconds:.1f} s")
    console.print()
    console.print(table)
    console.print()
    facts = {
        "data": f"{results.dataset}: " + ", ".join(f"{count:,} {split}" for split, count in results.examples.items())
    }
    if results.training:
        facts["training"] = _training(results.training, asynchronous)
    if results.restarts:
        facts["restarts"] = "; ".join(results.restarts)
    if results.accuracy is not None:
        facts["accuracy"] = f"{results.accuracy:.4f} on {results.evaluated:,} examples, mean loss {results.loss:.4f}"
        for name, values in results.slices.items():
            facts[f"by {name}"] = _by_slice(name, values, results.label_names)
    if results.blessed is not None:
        facts["blessed"] = "yes" if results.blessed else "no: " + "; ".join(results.reasons or ["no threshold was met"])
    pushed = results.pushed or "none"
    gone = results.pushed and not is_address(results.pushed) and not os.path.exists(results.pushed)
    facts["pushed model"] = f"{pushed} (deleted since)" if gone else pushed
    told = [each for each in results.warnings if not any(line.startswith(each.text) for line in results.restarts)]
    if told:
        facts["warnings"] = "\n".join(f"{each.component}: {each.text}" for each in told).replace("\n", "\n" + " " * 14)
    facts["TensorBoard"] = f"tensorboard --logdir {results.model_run}" if results.model_run else "none"
    facts["logs"] = logs
    for title, text in facts.items():
        console.print(f"{title:<13} {text}", markup=False)


def _training(facts: dict[str, float], asynchronous: bool) -> str:
    """Steps, time and pace, as far as they are known."""
    steps, rate, extra = "", "", facts.get("extra_steps")
    if "last_step" in facts:
        reason = ": asynchronous workers end the step that they are in" if asynchronous else ""
        more = f" ({extra:.0f} more than declared{reason})" if extra else ""
        steps = f"steps {facts['first_step']:.0f} to {facts['last_step']:.0f}{more} in "
    if "examples_per_second" in facts:
        rate = f", {facts['examples_per_second']:,.0f} examples/s"
    return f"{steps}{facts['train_seconds']:.0f} s (process start and export included){rate}"


def _by_slice(name: str, values: dict[str, tuple[float, int]], label_names: tuple[str, ...]) -> str:
    """Accuracies of the slices of one feature, labels by their names."""

    def title(value: str) -> str:
        return label_names[int(value)] if name == LABEL else value

    order = sorted(values, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))
    return ", ".join(f"{title(value)} {values[value][0]:.3f}" for value in order)
