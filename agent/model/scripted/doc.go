// Package scripted is a model without a model: deterministic and offline. It
// obeys a script in the user's message, and without one answers a sentence that
// proves what it remembers.
//
// The wiring, the tests and the Messages API double import it; it imports
// package model and the vocabulary. Invariant: an answer depends on the request
// alone, except that the faults of a script are counted in memory, so the same
// request gets the same answer after a retry, a resume or a fork.
package scripted
