// Package client is the Go client of Holdfast's HTTP API.
//
// It owns the transport: authentication, the conversion of problem documents into
// *holdfast.Error, and event streams that reconnect. It is for programs that use a server; of this module, the command
// line, the chat and the programs that test a server import it. It imports the vocabulary, a WebSocket library, and
// packages clock and sse. Invariant: an event stream yields each numbered event that was asked for exactly once and in
// order, across any number of reconnects, or ends with an error.
package client
