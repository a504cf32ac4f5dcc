"""Lengths of prompts and answers: constant, lognormal, or as measured in a published trace."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import Int32Array

MOST = 2**24
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST)]

PROMPT, OUTPUT = "prompt", "output"
_AT = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)
LIKE = {
    "azure-conv": {
        PROMPT: (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4142, 6212, 14050),
        OUTPUT: (7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 601, 954, 1000),
    },
    "azure-code": {
        PROMPT: (3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5186, 7302, 7436, 7437, 7437),
        OUTPUT: (6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 252, 824, 1899),
    },
    "mooncake-conv": {
        PROMPT: (891, 894, 901, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 39549, 85401, 121301, 126195),
        OUTPUT: (1, 3, 10, 24, 100, 213, 291, 350, 399, 447, 504, 597, 698, 1120, 2000, 2000),
    },
}
"""Tokens at the quantiles 0, 1 %, 5 %, 10 %, 20 … 90 %, 95 %, 99 %, 99.9 %, 1 of published traces: Azure LLM inference
2023, conversation (19,366 requests) and code (8,819); Mooncake (FAST 2025), conversation (12,031). Prompt and answer
hardly depend on each other in the first two: the logarithms correlate by 0.09 and 0.00."""


class Lengths(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Either mean and sigma: of a lognormal distribution, sigma of the logarithm, mean of the tokens before `most` cuts
    and rounding · or like: one of `LIKE`. most: longer ones are cut to it."""

    mean: Annotated[float, msgspec.Meta(ge=1, le=MOST)] | None = None
    sigma: Annotated[float, msgspec.Meta(ge=0, le=4)] = 0.0
    like: str = ""
    most: Tokens = MOST

    def __post_init__(self) -> None:
        if self.like and self.like not in LIKE:
            raise ValueError(f"like = {self.like!r}, use one of {', '.join(LIKE)}")
        if bool(self.like) == (self.mean is not None):
            raise ValueError("give either mean (and sigma) or like")


def draw(lengths: int | Lengths, part: str, count: int, rng: np.random.Generator) -> Int32Array:
    """int32[count] ≥ 1 tokens. part: `PROMPT` or `OUTPUT`, which matters to `like`."""
    if isinstance(lengths, int):
        return np.full(count, lengths, np.int32)
    if lengths.like:
        logs = np.interp(rng.random(count), _AT, np.log(LIKE[lengths.like][part]))
    else:
        # Such that the mean of exp(N(mu, sigma)) is the mean asked for.
        mu = np.log(lengths.mean or 1.0) - lengths.sigma**2 / 2
        logs = mu + lengths.sigma * rng.standard_normal(count)
    whole = np.rint(np.exp(np.minimum(logs, np.log(MOST)))).astype(np.int32)
    drawn: Int32Array = np.clip(whole, 1, lengths.most)
    return drawn
