"""What the features and outputs of a model are called."""

from __future__ import annotations

IMAGE = "image"
LABEL = "label"
# Names of the outputs; the Evaluator reads PROBABILITIES.
CLASSES = "classes"
CLASS_IDS = "class_ids"
LOGITS = "logits"
PROBABILITIES = "probabilities"
