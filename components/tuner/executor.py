"""The executor of Tuner: finds its folder, searches, and writes the results."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any, Optional

from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components import read_files
from tfx_estimator.components.execution import Artifacts, unkeyed_property
from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.components.trainer.jobs import read_settings
from tfx_estimator.components.trainer.settings import HOME_KEY, OPERATION_KEY
from tfx_estimator.components.trainer.settling import write_config
from tfx_estimator.components.trainer.training_claim import only_job
from tfx_estimator.components.tuner.search import Search
from tfx_estimator.components.tuner.training import Trials, steps_of
from tfx_estimator.components.tuner.trials import FAILED, Proposals, Result, Trial, best_of
from tfx_estimator.pipeline.base.errors import DeclarationError, TrainingError
from tfx_estimator.pipeline.base.log import STAYS, get_logger
from tfx_estimator.pipeline.config.put_values import TRIALS_FILE, short_names, show_value, show_values
from tfx_estimator.pipeline.config.tune import HYPERBAND, RANDOM, TuneSection
from tfx_estimator.pipeline.config.tune_checks import external_cluster_error

# Execution properties: JSON of the options that affect the trials, and of the others, which the driver blanks.
TUNE_KEY, TUNE_OPERATION_KEY = "tfx_estimator_tune", "tfx_estimator_tune_operation"
_RESULTS_FILE = "tuner_results.json"
_FOLDER = "tuning"

logger = get_logger("tuner")


class Executor(base_executor.BaseExecutor):
    """Trains trials in new processes, and publishes the best values."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Tunes; the properties are those of the Trainer, and of `to_properties`."""
        self._log_startup(input_dict, output_dict, exec_properties)
        if resolve(os.environ) is not None:
            raise external_cluster_error()
        home = exec_properties.get(HOME_KEY)
        exec_properties = {key: value for key, value in exec_properties.items() if key != HOME_KEY}
        node = self._context.pipeline_node if self._context else None
        settings = read_settings(self._context, exec_properties)
        section = of_properties(exec_properties[TUNE_KEY], unkeyed_property(node, exec_properties, TUNE_OPERATION_KEY))
        (tuned,) = output_dict[standard_component_specs.TUNER_RESULTS_KEY]
        results_uri = tuned.uri
        best_uri = artifact_utils.get_single_uri(output_dict[standard_component_specs.BEST_HYPERPARAMETERS_KEY])
        root = os.path.join(home or os.path.dirname(os.path.dirname(results_uri)), _FOLDER)
        folder = os.path.join(root, _key(input_dict, exec_properties, section))
        steps = steps_of(settings, exec_properties, input_dict[standard_component_specs.EXAMPLES_KEY])
        if section.strategy == HYPERBAND and not (steps or section.hyperband.max_steps):
            raise DeclarationError(
                "tune.strategy: hyperband, but the length of a training is not declared",
                expected="tune.hyperband.max_steps, or steps of the Trainer",
                todo="set tune.hyperband.max_steps",
            )
        logger.info(f"tuning starts; its trials: {folder}")
        proposals = Proposals(section, steps)
        configs: dict[int, Any] = {}

        def on_trial(trial: Trial, result: Optional[Result]) -> None:
            configs[trial.number] = trial.config
            _log(section, trial, result, results)

        results: list[Result] = []
        search = Search(section, proposals, lambda trial: trials.run(trial), on_trial)
        trials = Trials(folder, input_dict, exec_properties, settings, section, search.has_ended)
        try:
            with only_job(folder, bool(home)):
                if "Tuner" in settings.rerun and fileio.exists(folder):
                    fileio.rmtree(folder)
                found = search.search()
        except TrainingError:
            # The failures that ended the tuning are tried again by the next run; earlier results stay.
            for each in reversed(results):
                if each.status != FAILED:
                    break
                trials.forget(each.number)
            raise
        finally:
            proposals.close()
        best = best_of(found, section.objective.better or "max")
        assert best is not None  # else the search raised
        for line in lines(found, section, best):
            logger.info(line, extra=STAYS)
        write_config(best_uri, configs[best.number])
        _write(results_uri, section, found, best, folder)
        for each in found:
            trials.tidy(each.number)
        read_files.keep(tuned, read_files.of_training(*(trials.training(each.number) for each in found)))


def to_properties(section: TuneSection) -> dict[str, str]:
    """Returns the execution properties that carry the section."""
    deciding, operational = section.split()
    if section.strategy == RANDOM:
        # Random proposals do not depend on earlier results.
        operational["parallel_trials"] = deciding.pop("parallel_trials")
    return {
        # Ranges in another order are the same tuning.
        TUNE_KEY: json.dumps(deciding, sort_keys=True),
        TUNE_OPERATION_KEY: json.dumps(operational, sort_keys=True),
    }


def of_properties(deciding: str, operational: str) -> TuneSection:
    """Parses the properties that `to_properties` returns."""
    return TuneSection.parse_obj({**json.loads(deciding), **json.loads(operational or "{}")})


def _key(inputs: Artifacts, exec_properties: dict[str, Any], section: TuneSection) -> str:
    """Returns the name of this tuning's folder: the same for a retry, for more trials, and for other timeouts."""
    properties = {
        key: value for key, value in exec_properties.items() if key not in (OPERATION_KEY, TUNE_OPERATION_KEY)
    }
    deciding = json.loads(properties[TUNE_KEY])
    if section.strategy != HYPERBAND:
        deciding.pop("max_trials")
    properties[TUNE_KEY] = deciding
    artifacts = {key: sorted(artifact.uri for artifact in channel) for key, channel in inputs.items()}
    text = json.dumps([artifacts, properties], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _log(section: TuneSection, trial: Trial, result: Optional[Result], results: list[Result]) -> None:
    of = f"/{section.trials}" if section.trials else ""
    head = f"trial {trial.number}{of}: "
    if result is None:
        more = f", from the checkpoint of trial {trial.parent}" if trial.parent else ""
        logger.info(f"{head}{show_values(trial.values)}{more}")
        return
    results.append(result)
    if result.status == FAILED:
        logger.warning(f"{head}failed: {result.reason.splitlines()[0]}")
        return
    best = best_of(results, section.objective.better or "max")
    assert best is not None
    metric = section.objective.metric
    against = "the best so far" if best is result else f"the best so far is {best.score:.4f}, of trial {best.number}"
    logger.info(f"{head}{metric} {result.score:.4f}, {against}; {show_values(trial.values)}", extra=STAYS)


def _write(uri: str, section: TuneSection, found: list[Result], best: Result, folder: str) -> None:
    fileio.makedirs(uri)
    content = {
        "objective": {"metric": section.objective.metric, "mode": section.objective.better},
        "strategy": section.strategy,
        "ranges": {name: str(each) for name, each in section.ranges.items()},
        "best": best.number,
        "folder": folder,
        "trials": [each.to_dict() for each in found],
    }
    write_whole(os.path.join(uri, TRIALS_FILE), json.dumps(content, indent=1))
    # In the format of TFX's own Tuner.
    rows = [
        {"trial_id": str(each.number), "score": each.score, **each.values} for each in found if each.status != FAILED
    ]
    write_whole(os.path.join(uri, _RESULTS_FILE), json.dumps(rows))


def lines(results: Sequence[Result], section: TuneSection, best: Result) -> list[str]:
    """Formats a table: a header, and a line for each trial."""
    names = short_names(list(section.ranges))
    rows = [["trial", *names.values(), section.objective.metric, "steps", "seconds", ""]]
    rows += [
        [
            str(each.number),
            *(show_value(each.values.get(name, "")) for name in names),
            "-" if each.score is None else f"{each.score:.4f}",
            "-" if each.steps is None else f"{each.steps:,}",
            f"{each.seconds:.1f}",
            _remark(each, best),
        ]
        for each in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths)) + f"  {row[-1]}".rstrip()
        for row in rows
    ]


def _remark(each: Result, best: Result) -> str:
    if each.status == FAILED:
        return f"failed: {each.reason.splitlines()[0]}"
    remarks = [*(["best"] if each is best else []), *([f"continues trial {each.parent}"] if each.parent else [])]
    return ", ".join(remarks)
