"""Checks of whether the user's own modules can travel: read as text, never imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.paths import is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.platforms.registry import BY_NAME
from tfx_estimator.pipeline.user_source.fingerprint import find_root
from tfx_estimator.pipeline.user_source.needs import find_needs
from tfx_estimator.pipeline.user_source.pack import find_obstacles, pack
from tfx_estimator.pipeline.user_source.packages import distributions_of, is_of_image


def named_code(declaration: Declaration) -> dict[str, str]:
    """Returns the code that a declaration names, as `pack` takes it, by where it is named."""
    data, transform, trainer = declaration.data, declaration.transform, declaration.trainer
    # After a colon, TFDS's names have a version: `mnist:3.0.1`.
    is_module = data.dataset.partition(":")[2].isidentifier()
    builder = {"data.dataset": data.dataset} if is_module and not is_path(data.dataset) else {}
    return {
        **builder,
        f"transform.{'module_file' if transform.module_file is not None else 'preprocessing_fn'}": transform.target,
        f"trainer.{'module_file' if trainer.module_file is not None else 'model'}": trainer.target,
    }


def check_travel(declaration: Declaration, search_paths: Sequence[str], target: str = "") -> Iterator[Problem]:
    """Finds what of the user's own code cannot travel to where the pipeline, or its training, runs."""
    code, platform = _travelling(declaration, target), BY_NAME[target]
    together: list[str] = []
    seen: set[str] = set()
    for path, each in code.items():
        try:
            find_root(each, search_paths)
        except DeclarationError:
            continue  # told where it is checked
        together.append(each)
        # Each step has its own in a place of its own; else all is imported from one.
        for found in find_obstacles([each] if platform.runs_steps else together, search_paths):
            if found.what not in seen:
                seen.add(found.what)
                yield Problem(path, found.what, found.expected, found.todo, value=each)
    if target and not platform.runs_steps and not seen and len(together) == len(code):
        yield from platform.part("rules").check_size(declaration, pack(together, search_paths), path, each)


def note_travel(declaration: Declaration, search_paths: Sequence[str], target: str = "") -> Iterator[str]:
    """Says what the image must have beside this project."""
    code = _travelling(declaration, target).values()
    needs = [find_needs(each, search_paths) for each in code]
    installed = {need.module: need for each in needs for need in each.installed}
    if others := sorted(name for name in installed if not is_of_image(name)):
        named = (f"{'/'.join(distributions_of(name)) or name} ({installed[name].where})" for name in others)
        yield f"the image must have what your modules import beside tfx-estimator: {', '.join(named)}"
    for name, need in sorted({need.module: need for each in needs for need in each.unknown}.items()):
        yield (
            f"{need.where} imports {name}, which is found nowhere but, perhaps, in a folder that your code names: "
            "it does not travel"
        )


def _travelling(declaration: Declaration, target: str) -> dict[str, str]:
    """The code that is packed, by where it is named."""
    code = named_code(declaration)
    if target:
        return code
    trains = declaration.deploy is not None and declaration.deploy.trains_elsewhere
    return {path: each for path, each in code.items() if trains and path.startswith("trainer.")}
