"""Servers that speak the OpenAI protocol: vLLM, SGLang, llama.cpp, Ollama, the cloud."""
