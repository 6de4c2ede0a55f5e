"""Keeps an Estimator's training: its graphs in a SavedModel, the source of a Keras model over them, and a proof."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept import inputs, parts, seeds
from tfx_estimator.model_fn.bridge.kept.cut import Cut, cut
from tfx_estimator.model_fn.bridge.kept.graphs import EVAL, PREDICT, TRAIN, Called, call, opened, places
from tfx_estimator.model_fn.bridge.kept.inputs import InputFn
from tfx_estimator.model_fn.bridge.kept.optimizers import scale
from tfx_estimator.model_fn.bridge.kept.reach import of_process
from tfx_estimator.model_fn.bridge.kept.trial import Trial
from tfx_estimator.model_fn.bridge.kept.writing import Source
from tfx_estimator.model_fn.bridge.proof import Proof, require
from tfx_estimator.model_fn.bridge.steps import STEPS
from tfx_estimator.model_fn.bridge.written import drafted
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import first_line, one_line

GRAPH, SERVE, EXPORT, REPLICA = "graph", "serve", "export", "replica"
_V1 = tf.compat.v1


class _Writer:
    """Writes the graphs of one training."""

    def __init__(self, folder: str) -> None:
        self._builder = _V1.saved_model.Builder(folder)
        self._trained: dict[Any, str] = {}
        self.places: dict[str, dict[str, str]] = {}

    def write_train(self, called: Called, checkpoint: str) -> Cut | str:
        """Writes the training graph, whole and cut, with the variables of a checkpoint."""
        spec = called.spec
        with called.graph.as_default():
            found = cut(called.graph, spec.loss, spec.train_op, called.inputs.values(), called.applied)
            with tf.control_dependencies([spec.train_op]):
                loss = tf.identity(spec.loss)
            signatures = {"step": _signature(called, {"loss": loss})}
            if isinstance(found, Cut):
                with tf.control_dependencies(found.before):
                    loss = tf.identity(spec.loss)
                with tf.control_dependencies(found.after):
                    zero = tf.identity(tf.constant(0.0, spec.loss.dtype))
                halves = {
                    "gradients": _signature(called, {"loss": loss, **found.gradients}),
                    "apply": _signature(called, {"zero": zero}, found.gradients),
                }
            names = {each.op.name: each for each in _V1.global_variables()}
            saveables = _V1.get_collection(_V1.GraphKeys.SAVEABLE_OBJECTS)
            saver = _V1.train.Saver({**names, **{each.name: each for each in saveables}})
            called.finish()
            factor = [each.initializer for each in _V1.local_variables() if each.op.name == parts.FACTOR]
            spec.scaffold._local_init_op = main = tf.group(spec.scaffold.local_init_op, *factor)
            with opened(called, checkpoint) as session:
                self._trained = {key: each.op.name for key, each in places(called).items()}
                assets = _V1.get_collection(_V1.GraphKeys.ASSET_FILEPATHS)
                called.drop_collections()
                given = {"assets_collection": assets, "main_op": main, "saver": saver, "clear_devices": True}
                self._builder.add_meta_graph_and_variables(session, [TRAIN], signatures, **given)
                if isinstance(found, Cut):
                    called.drop_collections()
                    self._builder.add_meta_graph([TRAIN, REPLICA], halves, **given)
                    self._remove(found.removed)
        return found

    def write(self, called: Called, tag: str, signatures: dict[str, Any]) -> None:
        """Writes another graph, whose variables have the values that the checkpoint would give them."""
        called.finish()
        restored = {}
        for key, each in places(called).items():
            if key not in self._trained:
                raise UserCodeError(
                    f"the model_fn restores {key[0]} in mode {called.mode}, which its training does not save",
                    expected="what the training's Saver saves",
                    todo="let the Savers of all modes agree",
                )
            restored[self._trained[key]] = each
        self.places[tag] = {each.op.name: name for name, each in restored.items() if each.op.name != name}
        with called.graph.as_default():
            saver = _V1.train.Saver(restored)
            main, assets = called.spec.scaffold.local_init_op, _V1.get_collection(_V1.GraphKeys.ASSET_FILEPATHS)
            called.drop_collections()
            self._builder.add_meta_graph([tag], signatures, assets, main_op=main, saver=saver, clear_devices=True)

    def save(self) -> None:
        """Writes the file."""
        self._builder.save()

    def _remove(self, removed: dict[str, set[str]]) -> None:
        """Removes control dependencies from the last graph."""
        for node in self._builder._saved_model.meta_graphs[-1].graph_def.node:
            if names := removed.get(node.name):
                left = [each for each in node.input if each.removeprefix("^") not in names or each[0] != "^"]
                node.ClearField("input")
                node.input.extend(left)


def _signature(called: Called, outputs: dict[str, Any], given: Optional[dict[str, tf.Tensor]] = None) -> Any:
    called.require_portable(*outputs.values())
    given = called.taken(outputs.values()) if given is None else given
    with called.graph.as_default():
        info = [
            {name: _V1.saved_model.build_tensor_info(each) for name, each in one.items()} for one in (given, outputs)
        ]
    return _V1.saved_model.build_signature_def(*info, _V1.saved_model.signature_constants.PREDICT_METHOD_NAME)


@dataclasses.dataclass(frozen=True)
class Kept(Proof):
    """The proof, with why only one replica can train, if so, and the hooks, metrics and modes that are left out."""

    step: int = 0
    uncut: str = ""
    left_out: list[str] = dataclasses.field(default_factory=list)

    def lines(self) -> list[str]:
        """Returns what the terminal shows."""
        replicas = f"one: {self.uncut}" if self.uncut else "any number, under a tf.distribute strategy"
        served = f"evaluate and predict take other values of {len(self.served)} variables, such as averages"
        return [
            *Proof.lines(dataclasses.replace(self, served=[])),
            f"replicas      {replicas}",
            *([f"served        {served}"] if self.served else []),
            *([f"left out      {', '.join(self.left_out)}"] if self.left_out else []),
        ]


def keep(
    estimator: Any,
    train_input_fn: InputFn,
    eval_input_fn: InputFn,
    output: str,
    checkpoint: str,
    serving_input_receiver_fn: Optional[Callable[[], Any]] = None,
) -> Kept:
    """Writes the training's graphs, the source of a model over them, and the proof that it goes on as the Estimator."""
    types, batches = inputs.read(estimator, train_input_fn, TRAIN, STEPS)
    eval_types, eval_batches = inputs.read(estimator, eval_input_fn, EVAL, STEPS)
    train, modes, left_out = call(estimator, types, TRAIN), dict[str, Called](), list[str]()
    for mode in (EVAL, PREDICT):
        try:
            modes[mode] = call(estimator, eval_types, mode)
        except Exception as error:  # Many a model_fn is written for training alone.
            left_out.append(f"mode {mode}, in which the model_fn fails by {one_line(first_line(error))}")
    if PREDICT in modes:
        receiver_fn = serving_input_receiver_fn
        modes[EXPORT] = call(estimator, eval_types, PREDICT, receiver_fn) if receiver_fn else modes[PREDICT]
    scalable = scale(train.graph, train.applied, parts.FACTOR)
    with drafted(output) as draft:
        writer = _Writer(os.path.join(draft, GRAPH))
        cut_at = writer.write_train(train, checkpoint)
        if evaluation := modes.get(EVAL):
            writer.write(evaluation, EVAL, _of_evaluation(evaluation))
        if serving := modes.get(PREDICT):
            writer.write(serving, SERVE, {"predict": _signature(serving, _predictions(serving))})
        if exported := modes.get(EXPORT):
            writer.write(exported, EXPORT, _exported(exported))
        writer.save()
        uncut, per_replica = ("", cut_at.per_replica) if isinstance(cut_at, Cut) else (cut_at, [])
        left_out += _left_out(train, *modes.values())
        source = Source(writer.places, uncut, _is_summed(train.graph), scalable, per_replica, left_out)
        source.write(draft)
        proof, is_cut = Trial(estimator, checkpoint, types, batches, eval_types, eval_batches).compare(draft)
        if not (is_cut or uncut):
            source = dataclasses.replace(source, uncut="its two parts do not train as the whole step does")
            source.write(draft)
        step = int(tf.train.load_variable(checkpoint, _V1.GraphKeys.GLOBAL_STEP))
        served = sorted(writer.places.get(SERVE, {}))
        more = {"served": served, "step": step, "uncut": source.uncut, "left_out": left_out}
        kept = Kept(**{**vars(proof), **more})
        require(kept, draft, "use the code that trained; give loops of the model_fn parallel_iterations=1")
        seeds.take_away(os.path.join(draft, GRAPH))
    return kept


def _of_evaluation(called: Called) -> dict[str, Any]:
    with called.graph.as_default():
        with tf.control_dependencies([called.update]):
            loss = tf.identity(called.spec.loss)
        with tf.control_dependencies([_V1.local_variables_initializer()]):
            zero = tf.identity(0.0)
        return {
            "update": _signature(called, {"loss": loss}),
            "reset": _signature(called, {"zero": zero}),
            "result": _signature(called, {name: tf.convert_to_tensor(each) for name, each in called.metrics.items()}),
        }


def _predictions(called: Called) -> dict[str, tf.Tensor]:
    given = inputs.by_text(called.spec.predictions)
    return _portable(called, given if isinstance(given, dict) else {"": given})


def _portable(called: Called, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the predictions that a new process can compute."""
    found = {name: each for name, each in outputs.items() if not of_process(called.graph, [each])}
    called.left_out.extend(f"the prediction {name}" for name in outputs.keys() - found.keys())
    return found


def _exported(called: Called) -> dict[str, Any]:
    """Returns the signatures of the Estimator's exports."""
    from tensorflow_estimator.python.estimator.export import export_lib

    kind = export_lib.PredictOutput
    with called.graph.as_default():
        outputs = {
            name: kind(_portable(called, each.outputs)) if type(each) is kind else each
            for name, each in called.spec.export_outputs.items()
        }
        others = getattr(called.receiver, "receiver_tensors_alternatives", None)
        return export_lib.build_all_signature_defs(called.receiver.receiver_tensors, outputs, others)


def _left_out(*called: Called) -> list[str]:
    names = ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")
    hooks = [hook for each in called for name in names for hook in getattr(each.spec, name) or ()]
    named = [f"the hook {type(each).__name__}" for each in hooks]
    return list(dict.fromkeys([*named, *(name for each in called for name in each.left_out)]))


def _is_summed(graph: tf.Graph) -> bool:
    """True if tf.distribute would sum the gradients, as for the last loss of tf.losses with Reduction.SUM."""
    return graph._last_loss_reduction in (_V1.losses.Reduction.SUM, tf.keras.losses.Reduction.SUM)
