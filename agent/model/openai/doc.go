// Package openai is the model provider for OpenAI-compatible endpoints: OpenAI itself, Ollama,
// vLLM, llama.cpp and others that stream chat completions.
//
// Package app makes the provider; this package imports the vocabulary, agent/model, agent/model/remote and internal/sse.
// Invariants: the endpoint's data is untrusted and is read with limits; missing ids and usage are
// filled in, but an answer that was cut off is always a failure; no error contains the API key.
package openai
