// Package client is the Go client of Holdfast's HTTP API.
//
// It owns the way over the wire: authentication, problem documents turned back
// into *holdfast.Error, and event streams that reconnect. Anybody may import it;
// it imports the vocabulary and a WebSocket library. Invariant: an event stream
// yields every numbered event exactly once and in order, across any number of
// reconnects, or ends with an error.
package client
