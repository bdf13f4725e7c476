"""Model files made to do harm: does any of them end, hang or take over the process that reads it?

    python benchmarks/crafted_models.py [--kinds lightgbm,xgboost-json,…] [--files 80] [--seed 0]

For each kind of file that is read by name, small trained models are damaged (`crafted_files.py`
makes the files). A process of its own reads each of them and asks it for a few hundred rows; this
one watches, and leaves with 1 if a file ended that process, hung it, got code run, or raised
anything but an error of Waysout.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import crafted_files as craft

BAD = ("crash", "hang", "foreign", "code run")
MEMORY = 8 * 1024**3


def ask_all(out: int) -> None:
    """Read the files named on standard input, ask each for rows, and tell what came of it."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import waysout
    from waysout.errors import WaysoutError
    from waysout.oracles import file_trial

    file_trial.SECONDS = 20  # a loop takes as long as it may
    schema, rows = craft.schema(), craft.rows(400)
    for line in sys.stdin:
        path = line.strip()
        trusted = craft.TRUSTED if path.endswith(".skops") else ()
        outcome, reason = "answers", ""
        try:
            model = waysout.load_model(path, trusted_types=trusted)
            oracle = waysout.as_oracle(model, schema, positive=1)
            for start in range(0, len(rows), 200):
                oracle.ask(rows[start : start + 200])
        except WaysoutError as error:
            outcome, reason = "refused", str(error)
        except BaseException as error:
            outcome, reason = "foreign", f"{type(error).__name__}: {error}"
        os.write(out, (json.dumps([outcome, reason[:300]]) + "\n").encode())


class Asker:
    """The process under test; a new one after each that was lost."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.process: subprocess.Popen[bytes] | None = None

    def outcome(self, file: Path) -> tuple[str, str]:
        """Return what reading and asking a file came to, and why."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--ask"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{file}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self.limit)
        line = process.stdout.readline() if ready else b""
        if line:
            outcome, reason = json.loads(line)
            return outcome, reason
        self.process = None
        if not ready:
            process.kill()
            process.wait()
            return "hang", f"more than {self.limit:g} s"
        code = process.wait()
        return "crash", signal.Signals(-code).name if code < 0 else f"exit {code}"


def main() -> int:
    """Make the files, have them read, and print what came of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(craft.KINDS))
    parser.add_argument("--files", type=int, default=80, help="of each kind, at least 60")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a file may take")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        out = os.dup(1)
        os.dup2(2, 1)  # what the libraries print is no answer
        ask_all(out)
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        os.environ["WAYSOUT_CACHE"] = str(Path(place, "cache"))
        canary = Path(place, "canary")
        for kind in options.kinds.split(","):
            started, asker, counts = time.perf_counter(), Asker(options.limit), Counter[str]()
            folder = Path(place, kind)
            folder.mkdir()
            for file in craft.KINDS[kind](folder, options.files, options.seed, canary):
                outcome, reason = asker.outcome(file)
                if canary.exists():
                    outcome, reason = "code run", reason
                    canary.unlink()
                counts[outcome] += 1
                if outcome in BAD or file.name.startswith("whole"):
                    print(f"  {kind} {file.name}: {outcome} {reason[:200]}", flush=True)
                if file.name.startswith("whole") and outcome != "answers":
                    counts["whole model refused"] += 1
            told = ", ".join(f"{n} {name}" for name, n in counts.most_common())
            spent = time.perf_counter() - started
            print(f"{kind}: {counts.total()} files, {told} ({spent:.0f} s)", flush=True)
            bad += sum(counts[name] for name in (*BAD, "whole model refused"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
