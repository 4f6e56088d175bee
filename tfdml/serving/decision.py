"""Decides between known classes and none of them, in a served model and the files of runtimes."""

import keras
import numpy as np
from keras import ops

from tfdml.evaluation.calibration import CALIBRATIONS, Platt
from tfdml.serving.nearest import Nearest, checked_rows


class Decision(keras.layers.Layer):
    """An `OpenSetDecision` as a layer of float32 embeddings, (n, dim).

    Returns, each (n,): `class_id`, int32, the place of the class in the names; `score`,
    `probability` float32; `known`, booleans.
    """

    def __init__(self, decision):
        super().__init__(trainable=False, dtype="float32")
        rule = decision.rule
        self.stated = {
            "method": rule.method,
            "threshold": decision.threshold,
            "calibration": {of: name for name, of in CALIBRATIONS.items()}[
                type(decision.calibration)
            ],
            "classes": decision.names,
            **decision.facts,
        }
        self._is_ratio, self._threshold = rule.method == "ratio", decision.threshold
        self._calibration = decision.calibration
        class_ids = np.unique(rule.ids, return_inverse=True)[1]
        self._whitening = None if rule.whitening is None else self._stored(rule.whitening)
        rows = rule.rows if rule.whitening is None else rule.rows @ rule.whitening
        self._class_ids, self._scales = self._stored(class_ids, "int32"), self._stored(rule.scales)
        self._nearest = Nearest(checked_rows(rows), 2)

    def _stored(self, numbers, dtype="float32"):
        weight = self.add_weight(shape=numbers.shape, dtype=dtype, trainable=False)
        weight.assign(numbers)
        return weight

    def call(self, embeddings):
        rows = embeddings if self._whitening is None else ops.matmul(embeddings, self._whitening)
        found, places = self._nearest(rows)
        distances, place = found[:, 0], places[:, 0]
        if self._is_ratio:
            second = found[:, 1]
            apart = second > 0
            distances = ops.where(apart, distances / ops.where(apart, second, 1.0), 1.0)
        scores = -distances / ops.take(self._scales, place)
        return {
            "class_id": ops.take(self._class_ids, place),
            "score": scores,
            "probability": _probability(self._calibration, scores),
            "known": scores > self._threshold,
        }


def _probability(calibration, scores):
    if isinstance(calibration, Platt):
        return ops.sigmoid(calibration.slope * scores + calibration.intercept)
    points, values = calibration
    gaps = np.maximum(np.diff(points), np.finfo(np.float32).tiny)
    shares = ops.clip((scores[:, None] - np.float32(points[:-1])) / np.float32(gaps), 0.0, 1.0)
    return np.float32(values[0]) + ops.sum(shares * np.float32(np.diff(values)), axis=1)
