"""The run_fn and trainer_fn in the text of a user's module; nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.fingerprint import follow_imports
from tfx_estimator.pipeline.user_source.imports import parse
from tfx_estimator.pipeline.user_source.modules import defined_names, is_project

RUN_FN, TRAINER_FN = "run_fn", "trainer_fn"

_ESTIMATOR = re.compile(r"(^|[._])estimator\.\w*(Estimator|Classifier|Regressor)$")
_TRAINS = ("train_and_evaluate", "model_to_estimator")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def functions_of(module_file: str) -> tuple[str, ...] | None:
    """Returns which of the two functions a module file has: `run_fn`, `trainer_fn`, both or neither.

    None if unknown, as of `from x import *`. TFX calls run_fn, if there is one.
    """
    try:
        with open(module_file, "rb") as file:
            names = defined_names(ast.parse(file.read()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = tuple(name for name in (RUN_FN, TRAINER_FN) if name in names.functions or name in names.others)
    return found if RUN_FN in found or not names.is_open else None


def find_estimator(target: str, search_paths: Sequence[str] = ()) -> str:
    """Returns the call that trains an Estimator, as `model.py:120: tf.estimator.train_and_evaluate`; else nothing.

    It analyzes a run_fn, or that of a module file, and the user's functions that it calls. Calls are matched by name
    only, so another function of the same name is followed as well.
    """
    name = RUN_FN if target.endswith(".py") else target.partition(":")[2]
    try:
        sources = list(follow_imports(target, search_paths))
    except DeclarationError:
        return ""
    trees = {module: tree for module, data in sources if not is_project(module) and (tree := parse(data))}
    defined: dict[str, list[tuple[str, _Definition]]] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, _Definition):
                defined.setdefault(node.name, []).append((module.file.name if module.file else "", node))
    waiting, seen, trained, made, fits = [name], {name}, list[str](), list[str](), False
    while waiting:
        for file, node in defined.get(waiting.pop(0), ()):
            for line, call in _calls(node):
                if call.rpartition(".")[2] in _TRAINS and _is_of_estimator(call, defined):
                    trained.append(f"{file}:{line}: {call}")
                elif _ESTIMATOR.search(call):
                    made.append(f"{file}:{line}: {call}")
                fits = fits or (call.endswith(".fit") and "fit" not in defined)
            used = {each.id if isinstance(each, ast.Name) else each.attr for each in _names(node)}
            waiting += sorted(used & defined.keys() - seen)
            seen |= used
    # With a call of `fit`, a constructed Estimator may only provide the input_fns of its trainer_fn to a Keras model.
    return next(iter([*trained, *([] if fits else made)]), "")


def _names(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    yield from (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))


def _calls(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and name of each call."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, (ast.Name, ast.Attribute)):
            yield call.lineno, ast.unparse(call.func)


def _is_of_estimator(call: str, defined: dict) -> bool:
    # Keras users may define their own train_and_evaluate.
    return call.rpartition(".")[2] not in defined or "estimator." in call
