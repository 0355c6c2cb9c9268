// Package httpapi serves the HTTP API: routes, authentication, event streams,
// files, terminals, and the OpenAPI document that describes them.
//
// It owns what goes over the wire and nothing of what it means: the engine and
// the agent registry are interfaces declared here (engine.go). Only internal/app
// may import it; it imports the vocabulary and the journal's reader. Invariant (I-5):
// every answer that is not a success is a problem document with a kind
// (holdfast.Problem), and a reader that stalls is cut off without anybody else
// waiting for it.
package httpapi
