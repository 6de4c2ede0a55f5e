"""Your own TFDS builder; raise VERSION when its examples change."""

import numpy as np
import tensorflow_datasets as tfds

SIZE = 20


class Shapes(tfds.core.GeneratorBasedBuilder):
    """Squares, discs and crosses, drawn at random places."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(SIZE, SIZE, 1)),
            "label": tfds.features.ClassLabel(names=["square", "disc", "cross"]),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(900, 1), "test": self._generate_examples(300, 2)}

    def _generate_examples(self, count, seed):
        random = np.random.default_rng(seed)
        rows, columns = np.mgrid[:SIZE, :SIZE]
        for index in range(count):
            y, x = random.integers(6, SIZE - 6, 2)
            down, right = abs(rows - y), abs(columns - x)
            shapes = {
                "square": np.maximum(down, right) <= 4,
                "disc": down**2 + right**2 <= 20,
                "cross": (np.minimum(down, right) <= 1) & (np.maximum(down, right) <= 5),
            }
            label = ("square", "disc", "cross")[index % 3]
            noise = random.integers(0, 60, (SIZE, SIZE))
            image = (noise + 190 * shapes[label]).astype(np.uint8)
            yield index, {"image": image[..., None], "label": label}
