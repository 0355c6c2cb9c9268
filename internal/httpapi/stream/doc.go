// Package stream sends event streams from the place that a client names, and tracks all long answers: event streams,
// terminals and running commands, which the stop of the server or the revocation of their key must end.
//
// It owns the list of open answers and the writer of server-sent events. Only httpapi may
// import it; it imports the vocabulary, frames of the journal and the package problem.
// Invariant: an open answer ends at the latest when its request ends, its key is revoked or the
// server stops; a client that stalls is cut off without delaying others.
package stream
