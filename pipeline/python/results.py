"""Results of verbs that were called as functions."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import duration, one_line
from tfx_estimator.pipeline.config.yaml_text import inline, leaves
from tfx_estimator.pipeline.report.source import find_runs
from tfx_estimator.pipeline.runners.listener import NodeRun

if TYPE_CHECKING:
    import pandas as pd

    from tfx_estimator.pipeline.base.errors import DataError
    from tfx_estimator.pipeline.config import Declaration

REPORT, COMPARISON = "report.html", "compare.json"
# Rows of predictions shown in a notebook.
_SHOWN = 20


@dataclass(frozen=True, repr=False)
class RunResult:
    """The results of a run, which a notebook shows as a table.

    They are read from the run's log folder, which `compare` and the verbs `report` and `compare` also take.

    Args:
        logs: The run's log folder, with `summary.json` and the report.
        summary: The content of `summary.json`, see docs/declaration.md#where-things-are.
    """

    logs: str
    summary: Mapping[str, Any]

    def __fspath__(self) -> str:
        return self.logs

    @classmethod
    def of(cls, logs: Union[str, os.PathLike[str]]) -> RunResult:
        """Opens a finished run by its log folder, or by a pipeline's folder, for its latest run.

            tfx_estimator.RunResult.of(error.folder)

        Raises:
            DeclarationError: There is no run.
        """
        (run,) = find_runs([os.fspath(logs)])
        return cls(run.logs, run.summary)

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.summary.get("name", "")

    @property
    def metrics(self) -> dict[str, float]:
        """All numeric metrics of the evaluation, and `accuracy` and `loss` if the model has them."""
        main = {name: self.summary.get(name) for name in ("accuracy", "loss")}
        return {**{name: value for name, value in main.items() if value is not None}, **self.summary.get("metrics", {})}

    @property
    def blessed(self) -> Optional[bool]:
        """Whether the model was blessed; None without an evaluation."""
        return self.summary.get("blessed")

    @property
    def model_uri(self) -> Optional[str]:
        """Folder of the SavedModel: the pushed one, or else the trained one."""
        return self.summary.get("pushed") or self.summary.get("model")

    @property
    def components(self) -> list[NodeRun]:
        """The result of each component: `node`, `state` (`ran`, `cached`), `seconds`, and the `reason` why it ran."""
        components = self.summary.get("components", ())
        return [NodeRun(**{**each, "upstream": tuple(each["upstream"])}) for each in components]

    @property
    def report(self) -> Optional[str]:
        """File of the report; None if none was made."""
        path = os.path.join(self.logs, REPORT)
        return path if self.logs and os.path.exists(path) else None

    def to_dataframe(self) -> pd.DataFrame:
        """Returns a table with one row, the run and its metrics; `pd.concat` joins several."""
        import pandas as pd

        facts = {name: self.summary.get(name) for name in ("name", "started", "seconds", "blessed")}
        return pd.DataFrame([{**facts, **self.metrics}])

    def curves(self) -> pd.DataFrame:
        """Returns the measurements of training: `metric`, `of` (`train`, or an evaluation), `step`, and `value`."""
        import pandas as pd

        from tfx_estimator.pipeline.python.curves import read

        points = read(self.summary.get("model_run") or "")
        return pd.DataFrame(points, columns=["metric", "of", "step", "value"])

    def __repr__(self) -> str:
        return f"RunResult({self._line()})"

    def _line(self) -> str:
        blessed = {True: "blessed", False: "not blessed", None: "not evaluated"}[self.blessed]
        metrics = [f"{name} {value:.4f}" for name, value in self.metrics.items()]
        return ", ".join([f"{self.name}: {blessed}", *metrics, f"in {duration(self.summary.get('seconds', 0))}"])

    def _repr_html_(self) -> str:
        facts = [
            self._line(),
            *(str(each["text"]) for each in self.summary.get("warnings", ())),
            f"model: {self.model_uri}",
            f"report: {self.report}",
        ]
        rows = [(each.node, each.state, f"{each.seconds:.1f} s", each.reason) for each in self.components]
        return "".join(f"<div>{html.escape(each)}</div>" for each in facts) + table(
            ("component", "state", "time", "why"), rows
        )


@dataclass(frozen=True, repr=False)
class CompareResult:
    """The results of a comparison.

    Args:
        folder: Where compare.json and compare.html are.
        found: The content of compare.json, see docs/compare.md.
    """

    folder: str
    found: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Union[str, os.PathLike[str]]) -> CompareResult:
        """Opens a comparison, by the folder of its compare.json.

        Raises:
            DeclarationError: There is none.
        """
        folder = os.path.abspath(os.path.expanduser(folder))
        try:
            with open(os.path.join(folder, COMPARISON), encoding="utf-8") as file:
                return cls(folder, json.load(file))
        except (OSError, ValueError) as error:
            raise DeclarationError(
                f"no comparison can be read in {one_line(folder)}: {one_line(str(error))}",
                expected=f"a folder with {COMPARISON}, written by `compare`",
                todo="name it: the `folder` of a CompareResult, or of an error",
            ) from error

    @property
    def conclusions(self) -> list[str]:
        """A sentence for each candidate except the first, and what is unknown."""
        return self.found["conclusions"]

    @property
    def spread(self) -> float:
        """The difference between the highest and the lowest accuracy, in percentage points; or of RMSEs, in percent."""
        return self.found["spread_percent" if "spread_percent" in self.found else "spread_points"]

    def to_dataframe(self) -> pd.DataFrame:
        """Returns a table with a row for each candidate; the others are compared with the first."""
        import pandas as pd

        rows = [
            {
                "name": name,
                **{score: each[score]["value"] for score in self._scores},
                "difference": self.found["pairs"].get(name, {}).get(self._compared, {}).get("value"),
                "p": self.found["pairs"].get(name, {}).get("p"),
                **each["metrics"],
                **each["training"],
            }
            for name, each in self.found["candidates"].items()
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return "CompareResult(" + " ".join(self.conclusions) + ")"

    def _repr_html_(self) -> str:
        found = self.found["candidates"]
        rows = [(name, *(f"{each[score]['value']:.4f}" for score in self._scores)) for name, each in found.items()]
        text = "".join(f"<div>{html.escape(each)}</div>" for each in (*self.conclusions, self.folder))
        return table(("candidate", *self._scores), rows) + text

    @property
    def _scores(self) -> tuple[str, ...]:
        return ("rmse", "mae") if "spread_percent" in self.found else ("accuracy", "loss")

    @property
    def _compared(self) -> str:
        return "mse" if "spread_percent" in self.found else "accuracy"


@dataclass(frozen=True, repr=False)
class BenchResult:
    """The measurements of a bench of strategies.

    Args:
        folder: Where strategies.json, .png and .html are.
        found: The content of strategies.json, see docs/bench.md.
    """

    folder: str
    found: Mapping[str, Any]

    @property
    def answer(self) -> str:
        """Which strategy pays, in one line."""
        return self.found["answer"]

    def to_dataframe(self) -> pd.DataFrame:
        """Returns a table with a row for each strategy."""
        import pandas as pd

        return pd.DataFrame(list(self.found["strategies"].values()))

    def __repr__(self) -> str:
        return f"BenchResult({self.answer})"

    def _repr_html_(self) -> str:
        rows = [
            (
                name,
                f"{each['examples_per_second']:,.0f}",
                f"{each['speedup']:.2f}",
                f"{each['cpu_micros_per_example']:,.1f}",
            )
            for name, each in self.found["strategies"].items()
        ]
        text = "".join(f"<div>{html.escape(each)}</div>" for each in (self.answer, *self.found["doubts"], self.folder))
        return table(("strategy", "examples/s", "speedup", "CPU µs/example"), rows) + text


@dataclass(frozen=True)
class PredictResult:
    """A model's predictions.

    Args:
        rows: Of each example the `file`, or the columns of its row, `class`, and `scores` by class; or its
            `prediction`, as in a JSON lines file.
        error: The inputs that could not be read; None if all could.
    """

    rows: Sequence[Mapping[str, Any]]
    error: Optional[DataError] = None

    def to_dataframe(self) -> pd.DataFrame:
        """Returns a table with a row for each example, as in a CSV file."""
        import pandas as pd

        return pd.DataFrame([_flat(row) for row in self.rows])

    def __repr__(self) -> str:
        return f"PredictResult({len(self.rows):,} examples{f'; {self.error.what}' if self.error else ''})"

    def _repr_html_(self) -> str:
        rows = [_flat(row, shown=True) for row in self.rows[:_SHOWN]]
        titles = list(rows[0]) if rows else []
        return table(titles, [[*row.values()] for row in rows]) + f"<div>{html.escape(repr(self))}</div>"


def _flat(row: Mapping[str, Any], shown: bool = False) -> dict[str, Any]:
    """Returns a prediction with a column for the score of each class; or, to be shown, for the highest alone."""
    found = dict(row)
    _, last = found.popitem()
    if not isinstance(last, Mapping):
        return dict(row)
    scores = {"score": f"{max(last.values()):.4f}"} if shown else {f"score_{each}": last[each] for each in last}
    return {**found, **scores}


@dataclass(frozen=True, repr=False)
class Checked:
    """A valid declaration, of which a notebook shows the values that are not defaults.

    Args:
        source: The source, as it was named.
        declaration: Its values.
        remarks: Warnings and notes, a line each.
        tried: The code that was tried, in one line; empty without `deep`.
        origins: Where each value came from, by dotted path: `default`, `file:line`, `preset:line`, `--set`.
    """

    source: str
    declaration: Declaration
    remarks: tuple[str, ...]
    tried: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Checked({'; '.join(self._lines())})"

    def _lines(self) -> list[str]:
        from tfx_estimator.pipeline.commands.validate import summarise

        tried = [f"tried: {self.tried}"] if self.tried else []
        return [f"{self.source}: {summarise(self.declaration)}", *self.remarks, *tried]

    def _repr_html_(self) -> str:
        values = {".".join(path): inline(value) for path, value in leaves(self.declaration.dict())}
        chosen = {path: each for path, each in self.origins.items() if not each.startswith("default")}
        text = "".join(f"<div>{html.escape(each)}</div>" for each in self._lines())
        return text + table(("value", "", "from"), [(path, values[path], each) for path, each in chosen.items()])


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns an HTML table."""
    lines = [("th", titles), *(("td", row) for row in rows)]
    cells = ("".join(f"<{kind}>{html.escape(str(each))}</{kind}>" for each in row) for kind, row in lines)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
