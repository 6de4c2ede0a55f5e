"""Which entries of its `params` a model_fn takes, noted while it is trained."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.unread import keys_of, word_unread
from tfx_estimator.pipeline.user_source.functions import Keys, is_read

# The entry of a trainer_fn's specs that holds them.
SPEC_KEY = "recorded_params"
# The same of the declared optimizer, where the built-in model_fn trains by it.
OPTIMIZER_KEY = "declared_optimizer"


class RecordedParams(dict):
    """A dict that notes which of its entries are read; each copy of it, and each dict in it, notes them for all.

    An Estimator hands a deep copy to each call of a model_fn.

    Args:
        read: Where the keys of what is read are noted; `()` is all.
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
        # What is inside of another one notes itself.
        if not (key and isinstance(dict.get(self, key[0]), RecordedParams)):
            self.read.add((*self._path, *map(str, key)))

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedParams:
        return RecordedParams(copy.deepcopy(self._plain(), memo), self.read, self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._plain(),)

    def _plain(self) -> dict[str, Any]:
        return {key: value._plain() if isinstance(value, RecordedParams) else value for key, value in dict.items(self)}

    # Python calls dict's own methods by name, since AutoGraph cannot convert a `super()`.
    def __getitem__(self, key: Any) -> Any:
        self._note(key)
        return dict.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return dict.__contains__(self, key)

    def __iter__(self) -> Iterator[Any]:
        self._note()
        return dict.__iter__(self)

    def get(self, key: Any, default: Any = None) -> Any:
        """See dict."""
        self._note(key)
        return dict.get(self, key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        """See dict."""
        self._note(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """See dict."""
        self._note(key)
        return dict.setdefault(self, key, default)

    def keys(self) -> Any:
        """See dict."""
        self._note()
        return dict.keys(self)

    def values(self) -> Any:
        """See dict."""
        self._note()
        return dict.values(self)

    def items(self) -> Any:
        """See dict."""
        self._note()
        return dict.items(self)

    def copy(self) -> dict[str, Any]:
        """See dict."""
        self._note()
        return self._plain()


class UnreadHook(tf.compat.v1.train.SessionRunHook):
    """Reports at the end of training what was declared, and nothing took.

    Args:
        progress: Where to report.
        read: Tells what is read of the `params`.
    """

    def __init__(self, progress: ProgressWriter, settings: Settings, read: Callable[[], set[Keys]]) -> None:
        self._progress = progress
        self._settings = settings
        self._read = read

    def end(self, session: Any) -> None:
        """Reports."""
        section, read = self._settings.trainer, self._read()
        unread = [path for path in self._settings.declared if (keys := keys_of(path)) and not is_read(keys, read)]
        if unread and section is not None:
            self._progress.write(Event.NOTICED, text=word_unread(section, unread))


def unread_hooks(spec: dict[str, Any], settings: Settings, progress: ProgressWriter) -> Sequence[UnreadHook]:
    """Makes the hook, where there is something to watch.

    Args:
        progress: Where to report.
    """
    if settings.trainer is None:
        return ()
    if params := spec.get(SPEC_KEY):
        return (UnreadHook(progress, settings, lambda: params.read),)
    # A network of a declaration is trained by the built-in model_fn, which reads them all.
    return () if settings.trainer.module_file is None else (UnreadHook(progress, settings, set),)
