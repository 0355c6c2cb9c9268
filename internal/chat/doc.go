// Package chat is a conversation with a session: on a terminal with an editor, elsewhere
// line by line.
//
// What it owns: Talk, the state of a conversation, which takes events of the log, lines,
// keys and answers of the server, and returns the effects to carry out; the link, which
// carries them out with a client; and the two fronts, the screen and the lines. The text
// that is being written is in package compose. Only the command line imports it.
// Invariants: a message is sent once, however often the server goes away; nothing typed is
// lost; text from the server reaches the terminal through package plain only; control
// characters of a paste reach no model.
package chat
