"""How far answers may move between two extractions of the same prompts before it is more than noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scipy.special import bdtrc

from rlfocal.base.errors import InputError


@dataclass(frozen=True)
class Limits:
    """What may differ in one partition. Noise explains these shares; more counts if it is not chance."""

    logprob: float
    """How much the log-prob of a one-token choice may differ, in nats; of n tokens, √n times as much."""
    moved: float
    """Share of choices that may differ by more."""
    flipped: float
    """Share of documents that may get another prediction."""
    texts: float
    """Share of sampled texts that may differ."""


FULL = Limits(logprob=1e-3, moved=0.0, flipped=0.01, texts=0.1)
"""For float32: other batches move log-probs by some 1e-4, so ten times that and never more. Probabilities
that move by 1e-4 a token change one of 256 sampled tokens in 2.5 % of the texts."""
LOW = Limits(logprob=0.1, moved=0.01, flipped=0.05, texts=1.0)
"""For bfloat16, float16 and quantised models: rounding alone moves a log-prob by hundredths, and changes some
sampled token of nearly every text."""


@dataclass(frozen=True)
class Thresholds:
    """What counts as drift. Any difference in a partition that was not extracted again always does."""

    full: Limits = FULL
    """For models that compute in float32, and for imports."""
    low: Limits = LOW
    """For models that compute in 16 bits, are quantised, or are served by an unknown engine."""
    accuracy: float = 0.01
    """How much an accuracy, a fraction, may change; more counts if the change is more than chance."""
    error_rate: float = 0.05
    """How often noise alone may make any partition of a comparison count as drifted."""

    def __post_init__(self) -> None:
        shares = {"accuracy": self.accuracy, "error_rate": self.error_rate}
        for limits in (self.full, self.low):
            shares |= {"moved": limits.moved, "flipped": limits.flipped, "texts": limits.texts}
            if not limits.logprob >= 0:
                raise InputError(f"drift threshold logprob {limits.logprob}: give nats, from 0 up")
            for name, share in shares.items():
                if not 0 <= share <= 1:
                    raise InputError(f"drift threshold {name} {share}: give a fraction from 0 to 1")

    def changed(
        self, logprob: float | None = None, flipped: float | None = None, accuracy: float | None = None
    ) -> Thresholds:
        """With other limits, at any precision; None leaves one as it is. Raises InputError."""
        given = {name: v for name, v in (("logprob", logprob), ("flipped", flipped)) if v is not None}
        return Thresholds(
            replace(self.full, **given),
            replace(self.low, **given),
            self.accuracy if accuracy is None else accuracy,
            self.error_rate,
        )

    def limits(self, *, low_precision: bool) -> Limits:
        return self.low if low_precision else self.full


def exceeds(count: int, n: int, share: float, level: float) -> bool:
    """Whether `count` of `n` exceeds what this share explains: by chance less often than `level`."""
    return count > share * n and float(bdtrc(count - 1, n, share)) < level
