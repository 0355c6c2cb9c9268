// Package stream sends answers that go on: event streams, and what they share with
// terminals and running commands, which is that a stop or a revoked key ends them.
//
// It owns the list of open answers and the writer of server-sent events. Only httpapi may
// import it; it imports the vocabulary, frames of the journal and the package problem.
// Invariant: an open answer ends with its request, with its key and with the server, and
// no later; a reader that stalls is cut off without anybody else waiting for it.
package stream
