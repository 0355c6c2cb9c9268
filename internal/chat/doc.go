// Package chat is a conversation with a session: on a terminal with an editor, elsewhere
// line by line.
//
// The package owns three things. Talk is the state of a conversation: it takes events of the
// log, typed lines, keys and answers of the server, and returns the effects to carry out. The
// link carries out these effects with a client of the server. The two front ends, the screen and
// the lines, show them. Package compose holds the text that is being written. Only the command
// line imports this package. Invariants: a message is sent once, however often the server goes
// away; nothing typed is lost; text from the server reaches the terminal through package plain
// only; control characters of a paste reach no model.
package chat
