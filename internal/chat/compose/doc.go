// Package compose holds the text that a person writes before it is sent: an editor with a
// cursor, and the messages that were sent before.
//
// The package owns the text, the cursor, and the history with the draft that waits while the
// user looks through it. Only package chat imports it; it reads no keys and draws nothing.
// Invariants: Text returns what was typed or pasted, however it is shown, without the characters
// that Clean removes; no row contains a control character.
package compose
