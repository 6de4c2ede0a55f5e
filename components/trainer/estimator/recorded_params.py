"""Records which entries of its `params` a model_fn reads during training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.notes import describe_unread, keys_of
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.user_source.functions import Keys, is_read

# Keys of a trainer_fn's spec: the RecordedParams; the declared optimizer, if the built-in model_fn trains with it.
SPEC_KEY = "recorded_params"
OPTIMIZER_KEY = "declared_optimizer"


class RecordedParams(dict):
    """A dict that records which of its entries are read, in one set for all its copies and nested dicts.

    An Estimator passes a deep copy to each call of a model_fn.

    Args:
        read: The set of key paths that were read; `()` stands for all.
        path: The keys that lead to this dict.
    """

    def __init__(self, values: dict[str, Any], read: Optional[set[Keys]] = None, path: Keys = ()) -> None:
        self.read: set[Keys] = set() if read is None else read
        self._path = path
        inner = {
            key: RecordedParams(value, self.read, (*path, key)) if type(value) is dict else value
            for key, value in values.items()
        }
        super().__init__(inner)

    def _note(self, *key: Any) -> None:
        # A nested RecordedParams notes its own entries.
        if not (key and isinstance(dict.get(self, key[0]), RecordedParams)):
            self.read.add((*self._path, *map(str, key)))

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedParams:
        return RecordedParams(copy.deepcopy(self._plain(), memo), self.read, self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._plain(),)

    def _plain(self) -> dict[str, Any]:
        return {key: value._plain() if isinstance(value, RecordedParams) else value for key, value in dict.items(self)}

    def copy(self) -> dict[str, Any]:
        """See dict."""
        self._note()
        return self._plain()


def _noting(name: str, whole: bool) -> Callable[..., Any]:
    """Makes a method of dict that notes what it reads; without `super()`, which AutoGraph cannot convert."""
    own, keys = getattr(dict, name), 0 if whole else 1

    def method(self: RecordedParams, *args: Any) -> Any:
        self._note(*args[:keys])
        return own(self, *args)

    return method


for _name in ("__getitem__", "__contains__", "get", "pop", "setdefault"):
    setattr(RecordedParams, _name, _noting(_name, whole=False))
for _name in ("__iter__", "keys", "values", "items"):
    setattr(RecordedParams, _name, _noting(_name, whole=True))


@dataclass(frozen=True)
class _Unread(Observer):
    """Reports declared options that nothing has read by the end of training."""

    progress: ProgressWriter
    section: TrainerSection
    declared: Sequence[str]
    read: set[Keys]

    def end(self, step: int, values: Any) -> None:
        """See Observer."""
        unread = [path for path in self.declared if (keys := keys_of(path)) and not is_read(keys, self.read)]
        if unread:
            self.progress.write(Event.NOTICED, text=describe_unread(self.section, unread))


def unread_params(spec: dict[str, Any], settings: Settings, progress: ProgressWriter) -> Optional[Observer]:
    """Makes an observer that reports unread params; None for a network, whose built-in model_fn reads them all."""
    section, params = settings.trainer, spec.get(SPEC_KEY)
    if section is None or not (params or section.module_file):
        return None
    return _Unread(progress, section, settings.declared, params.read if params else set())
