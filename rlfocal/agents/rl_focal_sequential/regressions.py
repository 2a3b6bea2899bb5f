"""The regressions of one stage, arranged for one query at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.rl_focal_sequential.observations import Scales
from rlfocal.agents.rl_focal_sequential.softmax_regression import Weights

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Regressions:
    """R regressions over the log-probs of m models, C slots each, and the question's numbers."""

    opinion: Floats
    """(R,) of a task's own regressions: the weight of Fusion's opinion"""

    def __init__(self, weights: Weights, scales: Scales, at: NDArray[np.int64], of_task: bool) -> None:
        """Of the models at these positions, asked in this order."""
        shared, own = weights.shared.numpy(), weights.own.numpy()
        m, (r, _, c) = len(at), own.shape
        self.opinion = shared[:, 2 * m] if of_task else np.zeros(r)
        self._votes = np.ascontiguousarray(shared[:, m : 2 * m])
        self._polled = bool(self._votes.any())
        self._bias = weights.bias.numpy()
        self._shared = shared[:, :m] / scales.shared[at]
        self._mean, self._scale = scales.mean[at], scales.own[at]
        self._own = np.ascontiguousarray(own[:, : m * c].transpose(0, 2, 1).reshape(r * c, m * c))
        self._of_context = np.ascontiguousarray(own[:, m * c :].transpose(0, 2, 1).reshape(r * c, -1))
        gates = np.zeros((r, m, 0)) if of_task else shared[:, 2 * m :].reshape(r, -1, m).transpose(0, 2, 1)
        self._of_gates = (gates / scales.shared[at, None]).reshape(r * m, -1)
        # With answers from all in all slots, logits are affine in the values.
        same_slot = np.einsum("rm,cd->rcmd", self._shared, np.eye(c)).reshape(r * c, m * c)
        self._matrix = np.ascontiguousarray(same_slot + self._own * self._scale.ravel())
        self._zero = self._bias - (self._own @ (self._mean * self._scale).ravel()).reshape(r, c)

    def of_question(self, context: Floats, gates: Floats) -> tuple[Floats, Floats]:
        """(R, C) what the question adds to the logits, (R, m) and to the models' weights."""
        about = (self._of_context @ context).reshape(self._bias.shape)
        shift = self._of_gates @ gates if self._of_gates.shape[1] else np.zeros(len(self._of_gates))
        return about, shift.reshape(self._shared.shape)

    def of_votes(self, values: Floats, answered: Mask, width: int) -> Floats | float:
        """(R, C) what the votes of the models that `answered` (m, 1) add, in the slots below `width`."""
        if not self._polled:
            return 0.0
        votes = np.zeros(values.shape)
        votes[np.arange(len(values)), values[:, :width].argmax(axis=1)] = 1.0
        return np.asarray(self._votes @ (votes * answered))

    def of_values(self, values: Floats, answered: Mask, width: int) -> Floats:
        """(R, C) what centred log-probs (m, C) add, where `answered` (m, 1), in the slots below `width`."""
        shape = self._bias.shape
        if width == shape[1] and answered.all():
            return np.asarray((self._matrix @ values.ravel()).reshape(shape) + self._zero)
        standard = (values - self._mean) * self._scale * answered
        standard[:, width:] = 0.0
        logits = self._shared @ values + self._bias
        return np.asarray(logits + (self._own @ standard.ravel()).reshape(shape))
