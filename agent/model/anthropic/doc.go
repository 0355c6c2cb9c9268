// Package anthropic is the model provider for Claude models. It uses the Messages API through
// the official SDK.
//
// Package app makes the provider; this package imports the vocabulary, agent/model and agent/model/remote.
//
// Invariants: system text,
// tools and messages of a request depend only on the conversation, so that each request begins
// with the same bytes as the previous one and the API's prompt cache can serve them, also after
// a restart; thinking is sent back unchanged; no error contains the API key.
package anthropic
