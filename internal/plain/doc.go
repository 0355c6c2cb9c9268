// Package plain makes texts of agents, models and tools readable and harmless: text without
// terminal control sequences, and tool calls, questions and events as lines.
//
// It owns the rules of what may reach a terminal, and the words for what happens in a session. The
// command line, the chat and the protocol for editors import it; it depends on no terminal, server or colour. Invariant:
// no text that it returns contains terminal control, except an answer of the assistant from a
// Narrator that is not Live; and no part of a tool call that a person decides on is invisible.
package plain
