"""A computation as one Python module that needs NumPy and nothing else, and such a module run."""

from __future__ import annotations

import base64
import pprint
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phyb.policy.computation import INPUT, Computation, Kind, Operation

EXPRESSIONS: dict[Kind, str] = {
    "matmul": "{0} @ {1}",
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "maximum": "np.maximum({0}, {1})",
    "minimum": "np.minimum({0}, {1})",
    "tanh": "np.tanh({0})",
    "sigmoid": "0.5 * (np.tanh(0.5 * {0}) + 1.0)",
    "relu": "np.maximum({0}, 0.0)",
    "exp": "np.exp({0})",
    "log": "np.log({0})",
    "sqrt": "np.sqrt({0})",
    "mean": "{0}.mean(axis=-1, keepdims=True)",
    "columns": "{0}[..., {1}]",
    "select": "np.where({0}, {1}, {2})",
}

_MODULE = '''"""A policy, exported by phyb {version}. It needs NumPy and nothing else.

    import {name}

    action = {name}.act(observation)  # one observation, or a batch of them

ABOUT says where it comes from.
"""

import base64

import numpy as np

ABOUT = {about}


def _array(shape, kind, text):
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


def act(observations):
    """Actions, in the units of the log, for rows of {inputs} numbers."""
    observations = np.asarray(observations, np.float32)
    if observations.shape[-1:] != ({inputs},):
        raise ValueError(f"an observation has {inputs} numbers, found shape {{observations.shape}}")
{body}
    return {output}


{constants}
'''


def to_bytes(computation: Computation, about: Mapping[str, Any], name: str = "policy") -> bytes:
    """The text of the module `name`, weights inside."""
    body = "\n".join(f"    {step.output} = {_expression(step)}" for step in computation.operations)
    return _MODULE.format(
        version=about["phyb_version"],
        name=name,
        about=pprint.pformat(dict(about), width=110, sort_dicts=False),
        inputs=computation.widths[INPUT],
        body=body,
        output=computation.output,
        constants="\n".join(_constant(*item) for item in computation.constants.items()),
    ).encode()


def load(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """The function `act` of a module that `to_bytes` has just written; never one from a file."""
    names: dict[str, Any] = {}
    exec(compile(content, "the exported module", "exec"), names)
    return names["act"]


def _expression(step: Operation) -> str:
    if step.kind == "join":
        return f"np.concatenate([{', '.join(step.inputs)}], axis=-1)"
    return EXPRESSIONS[step.kind].format(*step.inputs)


def _constant(name: str, array: np.ndarray) -> str:
    stored = array.astype(array.dtype.newbyteorder("<"))
    text = textwrap.fill(base64.b64encode(stored.tobytes()).decode(), 110)
    return f'{name} = _array({array.shape}, "{stored.dtype.str}", """\n{text}\n""")'
