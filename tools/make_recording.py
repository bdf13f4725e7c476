"""Turn a run into a recording that a test replays without a model or an LLM.

    waysout find --method comp-mcts --data loan --row 2910 --llm llamacpp:FILE.gguf --run loan.db
    python tools/make_recording.py loan.db 2910 tests/golden/recordings/loan.json

It holds what the LLM and the oracle answered, in order, and what came of it. Of the requests it has
only their keys, so that a changed prompt is noticed; of the rows only what differs from the query,
whose number in the table is all that is told of it: data is not committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waysout.datasets import registry
from waysout.domain.oracle import Answers
from waysout.domain.result import plain
from waysout.domain.schema import Row, Value
from waysout.store import Recorded, Store


def main(run: Path, row: int, out: Path) -> None:
    """Write the recording of a run's first query."""
    with Store.read(run) as store:
        result, query = store.finished(0), store.query(0)
        if result is None or query is None:
            sys.exit(f"{run}: the first query is not finished")
        problem = store.manifest["problem"]
        recording = {
            "dataset": problem["name"],
            "row": row,
            "plan": store.manifest["plan"],
            "distance": problem["distance"],
            "query_probability": result.settings["query_probability"],
            "answers": [_answer(recorded, problem["name"], query) for recorded in store.answers(0)],
            "options": [
                {"to": {name: new for name, (_, new) in option.changes.items()},
                 "probability": option.probability}
                for option in result.options
            ],
            "metrics": {k: v for k, v in result.metrics.items() if k != "plausibility"},
            "rejections": result.rejections,
        }  # fmt: skip
    out.write_text(json.dumps(plain(recording), indent=1, ensure_ascii=False) + "\n", "utf-8")


def _answer(recorded: Recorded, dataset: str, query: Mapping[str, Value]) -> dict[str, Any]:
    answer = recorded.answer
    if isinstance(answer, Answers):
        changes = [_changes(dataset, query, row) for row in recorded.rows]
        return {"to": changes, "probability": answer.probability, "decision": answer.decision}
    return {"request": recorded.request_key, "reply": answer.text, "finish": answer.finish}


def _changes(dataset: str, query: Mapping[str, Value], row: Row) -> dict[str, Value]:
    names = [feature.name for feature in registry.card(dataset).schema]
    return {n: value for n, value in zip(names, row, strict=True) if value != query[n]}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
