"""The conversion of an exported graph to a Keras model."""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.graph import references
from tfx_estimator.model_fn.bridge.graph.exported import Exported, read
from tfx_estimator.model_fn.bridge.graph.proof import Proof, not_equal, prove
from tfx_estimator.model_fn.bridge.graph.writing import LIMITS, source_of
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, STEP, WEIGHT
from tfx_estimator.model_fn.bridge.written import MAPPING, NETWORK, PROOF, drafted, load
from tfx_estimator.pipeline.base.files import write_json

GRAPH = "graph"


@dataclass(frozen=True)
class Kept:
    """The result of a conversion."""

    exported: Exported
    placed: list[dict[str, Any]]
    proof: Proof

    def lines(self) -> list[str]:
        """Returns what the terminal shows."""
        proof = self.proof
        left = f", and leaves {', '.join(proof.still)}" if proof.still else ""
        kept = ", ".join(f"{name} {value:.3g}" for name, value in proof.kept.items())
        return [
            f"kept          {self.exported.signature}:{proof.compared} with {len(self.placed)} variables",
            f"compared      {proof.examples} examples: {proof.classes} with another class",
            f"largest difference  {proof.compared} of the exported model {proof.answers:.3g}",
            f"trains        a step of Keras's Adam changes {proof.gradients - len(proof.still)} of {proof.gradients} "
            f"trained weights{left}",
            f"read again    the trained model differs: {kept}",
            textwrap.fill(LIMITS, 120, initial_indent="limits        ", subsequent_indent=" " * 14),
        ]


def keep(folder: str, files: Sequence[str], output: str, answer: str = "") -> Kept:
    """Writes the graph, the source of a layer over it, and the proof that it answers the same and trains."""
    exported = read(folder, answer)
    with drafted(output) as draft:
        shutil.copytree(folder, os.path.join(draft, GRAPH))
        references.rewrite(os.path.join(draft, GRAPH))
        with open(os.path.join(draft, f"{NETWORK}.py"), "w", encoding="utf-8") as file:
            file.write(source_of(exported))
        module = load(draft)
        model = module.network()
        placed = _placed(model)
        write_json(os.path.join(draft, MAPPING), {"saved_model": folder, "tensors": placed})
        with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
            proof = prove(exported, module, model, files, scratch)
        write_json(os.path.join(draft, PROOF), proof.to_dict())
        if not proof.holds:
            raise not_equal(proof)
    return Kept(exported, placed, proof)


def _placed(model: tf.keras.Model) -> list[dict[str, Any]]:
    """Returns the mapping.json entry of each variable of the graph, with its index among the layer's weights."""
    trained = {each.name.partition(":")[0] for each in model.trainable_weights}
    return [
        {
            "tensor": (name := each.name.partition(":")[0]),
            "kind": STEP if name == GLOBAL_STEP else WEIGHT,
            "shape": each.shape.as_list(),
            "trained": name in trained,
            "place": f"weights[{index}]",
            "rule": "variable of the graph",
        }
        for index, each in enumerate(model.weights)
    ]
