"""The engine's process: loads a model, then answers what comes in until nothing more does.

It is a process of its own, since a thread would wait for the interpreter at every turn while
searches run. Run as ``python -m waysout.llm.local.engine``, with `wire` on its input and output.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from waysout.errors import InputError, LLMError, UnavailableError, WaysoutError
from waysout.llm.base import Usage
from waysout.llm.local.wire import Ask, EngineAnswer, EngineFailure, Loaded, Setup, receive, send

if TYPE_CHECKING:
    from waysout.llm.local.chat import Chat
    from waysout.llm.local.slots import Generation, Slots

Say = Callable[[object], None]
_LEAVING = 3.0
_KINDS = (InputError, UnavailableError, LLMError)


class Engine:
    """A loaded model: how it reads and writes, and the slots it does that in."""

    def __init__(self, setup: Setup) -> None:
        import torch

        from waysout.llm.local.load import load

        began = time.perf_counter()
        torch.set_num_threads(setup.threads or max(1, (os.cpu_count() or 1) // 2))
        self.most_bytes = setup.bytes
        self.chat: Chat
        self.slots: Slots
        self.chat, self.slots = load(setup)
        self.seconds = time.perf_counter() - began

    @property
    def loaded(self) -> Loaded:
        """What to tell of it."""
        model, slots = self.slots.model, self.slots
        on_gpu = model.device.type == "cuda"
        steps = ""
        if on_gpu:
            why = slots.no_graphs_because
            graphs = "with CUDA graphs" if slots.graphs else f"WITHOUT CUDA graphs ({why})"
            steps = f", attention by {slots.attention}, {graphs}"
        about = (
            f"loaded in {self.seconds:.1f} s on {model.device} "
            f"({model.slots} slots of {model.context} tokens{steps})"
        )
        # On a GPU there should always be some waiting, so that they can be read together.
        return Loaded(model.slots, model.context, about, model.slots * (2 if on_gpu else 1))

    def job(self, number: int, ask: Ask) -> Generation:
        """Return a request as a job for the slots."""
        from waysout.llm.local.slots import Generation

        prompt = self.chat.encode(ask.messages)
        return Generation(number, prompt, ask.max_tokens, ask.temperature, ask.seed)

    def answer(self, job: Generation) -> EngineAnswer:
        """Return the reply that an ended job has come to."""
        stopped = job.finish == "stop"
        text = self.chat.decode(job.written[:-1] if stopped else job.written)
        usage = Usage(len(job.prompt), len(job.written), job.cached)
        cut = text.encode(errors="replace")[: self.most_bytes].decode(errors="ignore")
        return EngineAnswer(
            cut, usage, (job.finish or "stop") if len(cut) == len(text) else "bytes"
        )


def main() -> None:
    """Be the engine of whoever holds the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its input does
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nobody else may write where answers go
    source = sys.stdin.buffer
    say: Say = lambda item: send(item, out)  # noqa: E731
    try:
        setup: Setup = receive(source)
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # From the start, so that whoever asks need not wait until the model is loaded.
        threading.Thread(target=_receive, args=(source, inbox), daemon=True).start()
        serve(Engine(setup), inbox, say)
    except (EOFError, BrokenPipeError):
        pass  # whoever asked is gone
    except WaysoutError as error:
        say(_broken(error))
    except Exception as error:
        traceback.print_exc()
        say(EngineFailure(LLMError, f"the engine broke down: {type(error).__name__}: {error}"))
    out.flush()
    os._exit(0)  # threads may still wait for what never comes


def _broken(error: WaysoutError) -> EngineFailure:
    """Return an error as it goes over the wire: of a class that is made of its words alone."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), LLMError)
    return EngineFailure(kind, str(error))


def _receive(source: IO[bytes], inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(receive(source))
    except EOFError:
        inbox.put(None)
        time.sleep(_LEAVING)
        os._exit(0)  # it is still loading, or stuck: nobody waits for that


def serve(engine: Engine, inbox: queue.SimpleQueue[Any], say: Say) -> None:
    """Answer until ``None`` comes."""
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_prepare, args=(engine, inbox, ready), daemon=True).start()
    say(engine.loaded)
    while True:
        while not (ready.empty() and engine.slots.busy):
            item = ready.get()
            if item is None:
                return
            _enter(engine, item, say)
        ended = engine.slots.advance()
        if ended:
            say([(job.id, engine.answer(job)) for job in ended])


def _prepare(engine: Engine, inbox: queue.SimpleQueue[Any], ready: queue.SimpleQueue[Any]) -> None:
    """Make tokens of requests, beside the engine's work."""
    while (item := inbox.get()) is not None:
        ready.put(_prepared(engine, *item))
    ready.put(None)


def _prepared(
    engine: Engine, number: int, ask: Ask | None
) -> Generation | int | tuple[int, EngineAnswer]:
    """Return a job, the number of one to cancel, or what is wrong with it."""
    if ask is None:
        return number
    try:
        return engine.job(number, ask)
    except Exception as error:  # a template is a program of its own
        return number, EngineAnswer(
            error=f"the prompt cannot be written for this model ({error!r})"
        )


def _enter(engine: Engine, item: Generation | int | tuple[int, EngineAnswer], say: Say) -> None:
    if isinstance(item, int):
        engine.slots.cancel(item)
    elif isinstance(item, tuple):
        say([item])
    else:
        try:
            engine.slots.submit(item)
        except ValueError as error:
            say([(item.id, EngineAnswer(error=str(error)))])


if __name__ == "__main__":
    main()
