// Package plain makes readable what agents, models, tools and titles say: text without
// terminal control, tool calls, questions and events as lines.
//
// What it owns: the rules of what may reach a terminal, and the words for what happens in
// a session. The command line and the chat import it; it knows no terminal, no server and
// no colour. Invariant: nothing that it returns moves a cursor, and nothing that somebody
// decides on is hidden.
package plain
