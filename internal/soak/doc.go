// Package soak runs one server for a long time under a steady load of sessions that come and go,
// and checks whether the server grew: live heap, resident set, descriptors, goroutines.
//
// cmd/holdfast uses it. It imports the client and the vocabulary; it starts the
// holdfast binary it is given as a child process. Invariant: samples are taken at
// equal load only, when every session is active, has a box, and runs nothing.
package soak
