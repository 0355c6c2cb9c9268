// Package chat is a conversation with a session: on a terminal with an editor, elsewhere
// line by line.
//
// What it owns: Talk, the state of a conversation, which takes what happens (events of the
// log, lines, keys, answers of the server) and says what is to be done about it; the link,
// which does that with a client; and the two fronts, the screen and the lines. Only the
// command line imports it. Invariants: a message is sent once, however often the server
// goes away; nothing typed is lost; what comes from the server reaches the terminal
// through package plain only; control characters of a paste reach no model.
package chat
