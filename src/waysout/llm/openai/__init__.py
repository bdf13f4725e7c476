"""Servers that speak OpenAI's chat completions: vLLM, SGLang, llama.cpp, Ollama, the cloud.

    pool       several servers of one model behind one backend, and `connect` for ``openai:…``
    backend    `OpenAIBackend`: one server; negotiates what it takes, explains what goes wrong
    dialect    the body of a request, and which of its parts a server has refused
    replies    `ReplyReader`: a stream of events, or one JSON object, becomes a `Reply`
    transport  HTTP to one address: ours over plain http, httpx2 for TLS and proxies
    http1      our own HTTP/1.1

A request goes `OpenAIBackend.complete` → ``_exchange`` → `Transport.send` → socket. There is no SDK
below: a batch makes thousands of calls a second, and the SDK took 2.5 to 7 ms of processor time for
each, where http1 takes 0.3 to 0.8.
"""
