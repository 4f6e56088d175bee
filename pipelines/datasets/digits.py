import numpy as np
from sklearn.datasets import load_digits

from pipelines.datasets.image_list import ImageList
from pipelines.preprocessing import Augmentation
from pipelines.split import Dataset


def load(data_dir=None, skip_invalid=False, training=True):
    """scikit-learn's 1,797 handwritten digits of 8 × 8 pixels: 0 to 4 train, 5 to 9 test."""
    digits = load_digits()
    images = (digits.images * (255.0 / 16.0)).round().astype("uint8")[..., None]
    digit_names = {digit: str(digit) for digit in range(10)}
    parts = np.where(digits.target < 5, "train", "test")
    splits = ImageList(images, digits.target, digit_names, parts=parts).splits()
    return Dataset("digits", image_size=(8, 8, 1), augmentation=Augmentation(shift=0.05), **splits)
