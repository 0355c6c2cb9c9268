// Package httpapi serves the HTTP API: its routes, and the server in front of them.
//
// It owns the shape of requests and answers, not their meaning: it calls the engine, the agent
// registry and the other parts of the server through interfaces that it declares (engine.go). A
// request passes the package guard before it reaches its route; problem answers failures, body
// reads requests, stream sends event streams, socket has the WebSockets, spec describes the routes.
// Only internal/app may import it; it imports the vocabulary, clock, conversation,
// the journal's reader, unsaved and those packages. Invariant (I-5): every answer that
// is not a success is a problem document with a kind (holdfast.Problem).
package httpapi
