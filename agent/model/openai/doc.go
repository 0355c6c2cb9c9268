// Package openai asks models behind an OpenAI-compatible endpoint: OpenAI
// itself, Ollama, vLLM, llama.cpp and others that stream chat completions.
//
// The app builds one; it imports agent/model and its remote part. Invariants:
// what an endpoint sends is hostile input, read with bounds; what it leaves out
// (ids, usage, the end of the stream) is made up for or refused, never guessed
// into an answer that was cut; the key is in no error.
package openai
