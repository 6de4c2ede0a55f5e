"""Checks of whether the user's own modules can travel: read as text, never imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.targets import TFJOB
from tfx_estimator.pipeline.config import config_map
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.paths import is_path
from tfx_estimator.pipeline.config.problems import Problem
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
    code = _travelling(declaration, target)
    together: list[str] = []
    seen: set[str] = set()
    for path, each in code.items():
        try:
            find_root(each, search_paths)
        except DeclarationError:
            continue  # told where it is checked
        together.append(each)
        # A TFJob's pods import all of it from one place; each step of another service its own.
        for found in find_obstacles(together if target == TFJOB else [each], search_paths):
            if found.what not in seen:
                seen.add(found.what)
                yield Problem(path, found.what, found.expected, found.todo, value=each)
    if target == TFJOB and not seen and len(together) == len(code):
        packed = pack(together, search_paths)
        if (size := config_map.size_of(*config_map.contents(declaration, packed))) > config_map.MOST_BYTES:
            what = f"your own modules and the declaration are {size:,} bytes, too many to travel in a ConfigMap"
            todo = "install the modules as a package, in the image and here"
            yield Problem(path, what, f"at most {config_map.MOST_BYTES:,}", todo, value=each)


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
    trains = declaration.deploy is not None and declaration.deploy.tfjob.train
    return {path: each for path, each in code.items() if trains and path.startswith("trainer.")}
