// Package pipetest tests the connection to a real agent CLI: boxd starts the CLI in a box without
// a network, the server talks to it over stdio, the CLI reaches its model through a socket in the
// box, and it outlives the server that started it.
//
// It contains only tests, and a server as small as possible for them. The runtime for users is
// elsewhere, in internal/runtime. Invariant: nothing in a box is imitated; only the model is a
// double.
package pipetest
