"""Callbacks: functions of a user that hear how a run goes and may stop it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from phyb.errors import CallbackError, InterruptedRunError

Callback = Callable[[int, Mapping[str, Any]], Any]
"""Called with (step, metrics) after every line about the policy in metrics.jsonl.

`metrics["stage"]` is "policy" for means over the last `log_every` updates, and "evaluation" for an evaluation.
Returning True stops the run: training ends with this update, and the policy it has is evaluated and reported as any
other; result.json says `stopped_at`. Anything else that is returned is ignored. Lines that were written before a run
was resumed are not heard again.
"""


def wants_to_stop(callbacks: Sequence[Callback], step: int, metrics: Mapping[str, Any]) -> bool:
    """Call all of them; whether any returned True.

    Raises:
        CallbackError: one of them raised; the message names it.
    """
    answers = []
    for callback in callbacks:
        try:
            answers.append(callback(step, dict(metrics)))
        except InterruptedRunError:
            raise
        except Exception as error:  # whatever a user's function may raise
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            raise CallbackError(
                f"The callback {name} failed at update {step:,} ({type(error).__name__}: {error}). Everything so far "
                "is saved; mend it and go on with resume."
            ) from error
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
