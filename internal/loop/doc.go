// Package loop is the agent loop: model call, tool calls, model call, until the model answers
// without tools. The server and users of package agent share this one loop.
//
// The native runtime and package agent import it; it imports the vocabulary, model, tool, policy,
// hook and sandbox. Invariants (I-10, I-12, I-13): a call of a mutating tool is issued only after
// its intent is recorded, always under the same call id; every tool use gets exactly one result,
// recorded before the next model call; and the loop can continue after any record from nothing but
// the conversation that it is given.
package loop
