"""The engine's process: loads a model, then answers requests until its input closes.

It is a separate process, since a thread would wait for the GIL at every step while searches run.
Run as ``python -m waysout.llm.local.engine``, with the messages of `process` on its input and
output.
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
from typing import TYPE_CHECKING, Any

from waysout.errors import LLMError, WaysoutError
from waysout.llm.base import Usage
from waysout.llm.local.process import Ask, EngineAnswer, EngineFailure, Loaded, Setup, receive, send

if TYPE_CHECKING:
    from waysout.llm.local.chat import Chat
    from waysout.llm.local.scheduler import Generation, Scheduler

Send = Callable[[object], None]
_EXIT_SECONDS = 3.0


class Engine:
    """A loaded model: its chat template and the scheduler of its slots."""

    def __init__(self, setup: Setup) -> None:
        import torch

        from waysout.llm.local.load import load

        began = time.perf_counter()
        torch.set_num_threads(setup.threads or max(1, (os.cpu_count() or 1) // 2))
        self.most_bytes = setup.bytes
        self.chat: Chat
        self.scheduler: Scheduler
        self.chat, self.scheduler = load(setup)
        self.seconds = time.perf_counter() - began

    @property
    def loaded(self) -> Loaded:
        """How the model runs."""
        model, scheduler = self.scheduler.model, self.scheduler
        on_gpu = model.device.type == "cuda"
        steps = ""
        if on_gpu:
            why = scheduler.no_graphs_because
            graphs = "with CUDA graphs" if scheduler.graphs else f"WITHOUT CUDA graphs ({why})"
            steps = f", attention by {scheduler.attention}, {graphs}"
        sampling = str(scheduler.sampling).replace("&", ", ")
        drawn = f", drawing with {sampling}" if sampling else ""
        about = (
            f"loaded in {self.seconds:.1f} s on {model.device} "
            f"({model.slots} slots of {model.context} tokens{steps}{drawn})"
        )
        # On a GPU some requests should always be waiting, so that their prompts are read together.
        return Loaded(about, model.slots * (2 if on_gpu else 1))

    def generation(self, number: int, ask: Ask) -> Generation:
        """Return a request as a generation for the scheduler."""
        from waysout.llm.local.scheduler import Generation

        prompt = self.chat.encode(ask.messages)
        return Generation(number, prompt, ask.max_tokens, ask.temperature, ask.seed)

    def answer(self, done: Generation) -> EngineAnswer:
        """Return the reply of a generation that has ended."""
        text = self.chat.decode(done.written[:-1] if done.finish == "stop" else done.written)
        usage = Usage(len(done.prompt), len(done.written), done.cached)
        cut = text.encode(errors="replace")[: self.most_bytes].decode(errors="ignore")
        finish = (done.finish or "stop") if len(cut) == len(text) else "bytes"
        return EngineAnswer(cut, usage, finish)


def main() -> None:
    """Serve the parent process over stdin and stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine ends when its input closes
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write to the answer stream
    source = sys.stdin.buffer
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                inbox.put(receive(source))
        except EOFError:
            inbox.put(None)
            time.sleep(_EXIT_SECONDS)
            os._exit(0)  # it is still loading, or stuck

    reply: Send = lambda message: send(message, out)  # noqa: E731
    try:
        setup: Setup = receive(source)
        # Started early, to read requests and notice a closed input while the model loads.
        threading.Thread(target=read, daemon=True).start()
        serve(Engine(setup), inbox, reply)
    except (EOFError, BrokenPipeError):
        pass  # the other process is gone
    except WaysoutError as error:
        reply(EngineFailure.of(error))
    except Exception as error:
        traceback.print_exc()
        reply(EngineFailure(LLMError, f"the engine failed: {type(error).__name__}: {error}"))
    out.flush()
    os._exit(0)  # threads may still wait for input


def serve(engine: Engine, inbox: queue.SimpleQueue[Any], reply: Send) -> None:
    """Answer requests until ``None`` arrives; a number with ``None`` cancels its request."""
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def tokenize() -> None:
        """Tokenize requests in parallel with the engine's work."""
        while (item := inbox.get()) is not None:
            number, ask = item
            try:
                ready.put(number if ask is None else engine.generation(number, ask))
            except Exception as error:  # a template can raise anything
                reason = f"the prompt cannot be formatted for this model ({error!r})"
                ready.put((number, EngineAnswer(error=reason)))
        ready.put(None)

    threading.Thread(target=tokenize, daemon=True).start()
    reply(engine.loaded)
    while True:
        while not (ready.empty() and engine.scheduler.busy):
            item = ready.get()
            if item is None:
                return
            if isinstance(item, int):
                engine.scheduler.cancel(item)
            elif isinstance(item, tuple):
                reply([item])
            else:
                try:
                    engine.scheduler.submit(item)
                except ValueError as error:
                    reply([(item.id, EngineAnswer(error=str(error)))])
        if ended := engine.scheduler.advance():
            reply([(done.id, engine.answer(done)) for done in ended])


if __name__ == "__main__":
    main()
