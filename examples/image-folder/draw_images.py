"""Writes scikit-learn's digits as PNG files, a folder for each class; replace them by your own images."""

from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

digits = load_digits()
for index, (pixels, label) in enumerate(zip(digits.images, digits.target)):
    folder = Path("images") / CLASSES[label]
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 255 / 16).astype("uint8")).resize((16, 16)).save(folder / f"{index:04}.png")
