"""The ONNX files of `crafted_models.py`: other graphs, and trees whose indices lead nowhere."""

from __future__ import annotations

import random
from typing import Any

import onnx
from onnx import TensorProto, helper

NODES = (
    "nodes_truenodeids", "nodes_falsenodeids", "nodes_featureids", "nodes_nodeids",
    "nodes_treeids", "class_nodeids", "class_treeids", "class_ids", "target_nodeids",
)  # fmt: skip
INTEGERS = (-1, 1, 0, 7, 10**4, 10**6, 2**31 - 1, 2**40, -(2**31))


def wholes(cells: Any, outcome: Any) -> list[bytes]:
    """Return a forest and a line."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    line = make_pipeline(SimpleImputer(), LogisticRegression())
    made = []
    for model in (RandomForestClassifier(4, max_depth=4, random_state=0), line):
        model.fit(cells, outcome)
        last = model[-1] if model is line else model
        options = {id(last): {"zipmap": False}}
        made.append(to_onnx(model, cells[:1].astype("f"), options=options).SerializeToString())
    return made


def tree_edit(content: bytes, rng: random.Random) -> bytes:
    """Change an index of the trees, cut one of their arrays, or the number of classes."""
    model = onnx.load_from_string(content)
    node = rng.choice(list(model.graph.node))
    ensembles = [n for n in model.graph.node if n.op_type.startswith("TreeEnsemble")]
    node = ensembles[0] if ensembles else node
    arrays = [a for a in node.attribute if a.name in NODES and a.ints]
    if not arrays:
        for a in node.attribute:
            if a.floats:
                del a.floats[rng.randrange(len(a.floats)) :]
        return bytes(model.SerializeToString())
    array = rng.choice(arrays)
    if rng.random() < 0.15:
        del array.ints[rng.randrange(len(array.ints)) :]
    else:
        array.ints[rng.randrange(len(array.ints))] = rng.choice(INTEGERS)
    return bytes(model.SerializeToString())


def _graph(nodes: list[Any], initial: list[Any] = []) -> bytes:  # noqa: B006
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 5])
    taken = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [taken], initializer=initial)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil.domain", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    return bytes(model.SerializeToString())


def _external(place: str) -> Any:
    def external(content: bytes, rng: random.Random) -> bytes:
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5, 2])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", place), ("offset", "0"), ("length", "40")):
            entry = weight.external_data.add()
            entry.key, entry.value = key, value
        nodes = [helper.make_node("MatMul", ["X", "w"], ["y"]),
                 helper.make_node("Softmax", ["y"], ["probabilities"])]  # fmt: skip
        return _graph(nodes, [weight])

    return external


def custom(content: bytes, rng: random.Random) -> bytes:
    """Ask for an operator that nobody knows."""
    return _graph([helper.make_node("Run", ["X"], ["probabilities"], domain="evil.domain")])


def dims(content: bytes, rng: random.Random) -> bytes:
    """Hold a tensor of more cells than there is memory, or of less data than cells."""
    size = rng.choice(([2**31, 2**31], [10**12, 5], [-1, 5], [10**6, 10**6], [2**62, 4]))
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=size, raw_data=b"abcd" * 10)
    return _graph([helper.make_node("MatMul", ["X", "w"], ["probabilities"])], [weight])


def huge(content: bytes, rng: random.Random) -> bytes:
    """Make a tensor that takes all memory."""
    shape = helper.make_tensor("s", TensorProto.INT64, [2], [10 ** rng.choice((5, 6, 9)), 10**5])
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["big"]),
        helper.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        helper.make_node("Add", ["X", "sum"], ["probabilities"]),
    ]
    return _graph(nodes, [shape])


def loop(content: bytes, rng: random.Random) -> bytes:
    """Go round for ever, with or without growing."""
    value = helper.make_tensor_value_info
    grows = rng.random() < 0.5
    step = ("Concat", ["v", "v"]) if grows else ("Identity", ["v"])
    body = helper.make_graph(
        [helper.make_node(step[0], step[1], ["v2"], **({"axis": 0} if grows else {})),
         helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []),
         value("v", TensorProto.FLOAT, None)],
        [value("c2", TensorProto.BOOL, []), value("v2", TensorProto.FLOAT, None)],
    )  # fmt: skip
    initial = [helper.make_tensor("n", TensorProto.INT64, [], [2**62]),
               helper.make_tensor("t", TensorProto.BOOL, [], [True])]  # fmt: skip
    return _graph([helper.make_node("Loop", ["n", "t", "X"], ["probabilities"], body=body)],
                  initial)  # fmt: skip


def cycle(content: bytes, rng: random.Random) -> bytes:
    """Let two nodes wait for each other."""
    return _graph([helper.make_node("Add", ["X", "b"], ["a"]),
                   helper.make_node("Add", ["a", "X"], ["b"]),
                   helper.make_node("Identity", ["b"], ["probabilities"])])  # fmt: skip


def gather(content: bytes, rng: random.Random) -> bytes:
    """Take a column that is not there."""
    at = helper.make_tensor("at", TensorProto.INT64, [2], [rng.choice(INTEGERS), 10**9])
    return _graph([helper.make_node("Gather", ["X", "at"], ["probabilities"], axis=1)], [at])


def row_gather(content: bytes, rng: random.Random) -> bytes:
    """Take the column that a cell of the row names."""
    made = [helper.make_node("Cast", ["X"], ["i"], to=TensorProto.INT64),
            helper.make_node("GatherElements", ["X", "i"], ["probabilities"], axis=1)]  # fmt: skip
    return _graph(made)


GRAPHS = [
    _external("/etc/passwd"), _external("../../../../../../etc/passwd"), _external("/dev/zero"),
    custom, dims, huge, loop, cycle, gather, row_gather, dims, huge, loop,
]  # fmt: skip
