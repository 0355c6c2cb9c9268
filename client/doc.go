// Package client is the Go client of Holdfast's HTTP API.
//
// It owns the transport: authentication, the conversion of problem documents into
// *holdfast.Error, and event streams that reconnect. Every package and program may import it;
// it imports the vocabulary and a WebSocket library. Invariant: an event stream yields every
// numbered event exactly once and in order, across any number of reconnects, or ends with an
// error.
package client
