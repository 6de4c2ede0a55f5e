"""The `trainer.augment` list: augmentation of training examples, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

_MAX_SIDE = 4096
_FILL = "how edges are filled: with zero, or with the image's reflection"


class RandomFlip(Section):
    """Mirrors an image with probability 1/2."""

    mode: Literal["horizontal", "vertical", "both"] = Field(
        "horizontal", "horizontal swaps left and right; both draws each direction independently"
    )


class RandomCrop(Section):
    """Pads the image, and crops it to its original size."""

    padding: int = number(4, 1, _MAX_SIDE, "pixels at each edge")
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomTranslation(Section):
    """Moves the image by whole pixels."""

    height_factor: float = number(0.1, 0, 1, "largest shift up or down, as a fraction of the height")
    width_factor: float = number(0.1, 0, 1, "largest shift left or right, as a fraction of the width")
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomRotation(Section):
    """Rotates the image about its centre, with bilinear interpolation."""

    degrees: float = number(15.0, None, 180, "largest angle, in both directions", gt=0)
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomZoom(Section):
    """Enlarges or shrinks the image about its centre, with bilinear interpolation."""

    factor: float = number(0.1, None, None, "0.1 scales by 0.9 to 1.1", gt=0, lt=1)
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomBrightness(Section):
    """Adds a number to the whole image."""

    factor: float = number(0.2, None, 1000, "largest absolute value, in the units of the transformed image", gt=0)


class RandomContrast(Section):
    """Multiplies each channel's distance from its mean over the image."""

    factor: float = number(0.2, None, 1, "0.2 multiplies by 0.8 to 1.2", gt=0)


class RandomSaturation(Section):
    """Multiplies the distance of a pixel's red, green and blue from its grey."""

    factor: float = number(0.2, None, 1, "0.2 multiplies by 0.8 to 1.2", gt=0)


class Cutout(Section):
    """Sets a square to zero."""

    size: int = number(8, 1, _MAX_SIDE, "side in pixels; its centre is any pixel, so part of it may lie outside")


class GaussianNoise(Section):
    """Adds a normally distributed number to each element."""

    stddev: float = number(0.1, None, 1000, "standard deviation, in the units of the transformed image", gt=0)


class Operation(Section):
    """One item of the list: exactly one operation, by name or with options."""

    random_flip: Optional[RandomFlip] = None
    random_crop: Optional[RandomCrop] = None
    random_translation: Optional[RandomTranslation] = None
    random_rotation: Optional[RandomRotation] = None
    random_zoom: Optional[RandomZoom] = None
    random_brightness: Optional[RandomBrightness] = None
    random_contrast: Optional[RandomContrast] = None
    random_saturation: Optional[RandomSaturation] = None
    cutout: Optional[Cutout] = None
    gaussian_noise: Optional[GaussianNoise] = None

    SCHEMA = {"minProperties": 1, "maxProperties": 1}
    SPARSE = True

    @property
    def declared(self) -> Mapping[str, Section]:
        """The declared operations by name: one, if the declaration is valid."""
        return dict(self.sections())


Operation.SHORT_FORM = {"type": "string", "enum": list(Operation.__fields__)}


def expand_operations(value: Any) -> Any:
    """Expands short forms: `random_flip` becomes `{random_flip: {}}`."""
    return [_expand(item) for item in value] if isinstance(value, (list, tuple)) else value


def _expand(item: Any) -> Any:
    if isinstance(item, str):
        return {item: {}}
    if isinstance(item, dict):
        return {name: {} if options is None else options for name, options in item.items()}
    return item
