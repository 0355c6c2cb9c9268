// Package pipetest proves the pipe with a real agent CLI: started by boxd in a
// box without a network, spoken to over its stdio, reaching its model through a
// socket of the box, and outliving the server that started it.
//
// It holds tests only, and a server as small as it can be for them. The runtime
// that users get lives elsewhere. Invariant: nothing in a box is imitated; the
// model alone is a double.
package pipetest
