// Package soak runs one server under a steady load of sessions that come and go,
// for long, and judges whether it grew: live heap, resident set, descriptors,
// goroutines.
//
// cmd/holdfast uses it. It imports the client and the vocabulary; it starts the
// holdfast binary it is given as a child process. Invariant: samples are taken at
// equal load only, when every session is active, has a box, and runs nothing.
package soak
