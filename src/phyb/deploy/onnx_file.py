"""A computation as an ONNX file, and such a file run by ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phyb.errors import MissingExtraError
from phyb.policy.computation import INPUT, Computation, Kind

OPSET, IR_VERSION = 13, 8
"""Old enough for runtimes of the last years; nothing newer is needed."""
OUTPUT = "actions"
OPERATORS: dict[Kind, str] = {
    "matmul": "MatMul",
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "mean": "ReduceMean",
    "join": "Concat",
    "columns": "Gather",
    "select": "Where",
}
_ATTRIBUTES: dict[Kind, dict[str, Any]] = {"mean": {"axes": [-1]}, "join": {"axis": -1}, "columns": {"axis": 1}}


def to_bytes(computation: Computation, about: Mapping[str, Any], name: str = "policy") -> bytes:
    """One ONNX model: float32 rows `observations` of any number to rows `actions`; what is `about` it is metadata.

    Raises:
        MissingExtraError: the package `onnx` is not installed.
    """
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise MissingExtraError("onnx", "Writing an ONNX file") from error
    nodes = [
        helper.make_node(
            OPERATORS[step.kind],
            step.inputs,
            [OUTPUT if step.output == computation.output else step.output],
            **_ATTRIBUTES.get(step.kind, {}),
        )
        for step in computation.operations
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", computation.widths[value]])
        for name, value in ((INPUT, INPUT), (OUTPUT, computation.output))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in computation.constants.items()]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], constants)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="phyb",
        producer_version=str(about["phyb_version"]),
    )
    helper.set_model_props(model, {name: json.dumps(value, allow_nan=False) for name, value in about.items()})
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def load(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """What the file's content gives for rows of observations, by ONNX Runtime on one thread.

    Raises:
        MissingExtraError: the package `onnxruntime` is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnx", "Checking an ONNX file") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda observations: np.asarray(session.run([OUTPUT], {INPUT: observations})[0])
