// Package scripted is a model provider without a real model: deterministic and offline. It
// executes the script in the user's message; if the message has none, it answers with a sentence
// that proves which messages it got.
//
// Package app, the tests and internal/double, a server that imitates the Messages API, import it; it
// imports package model and the vocabulary. Invariant: an answer depends on the request
// alone, except that the faults of a script are counted in memory, so the same
// request gets the same answer after a retry, a resume or a fork.
package scripted
