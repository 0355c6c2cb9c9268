// Package loop is the agent loop: model call, tool calls, model call, until the
// model answers without tools. There is one loop, for the server and for users
// of package agent.
//
// The native runtime and package agent import it; it imports the
// vocabulary, model, tool, policy, hook and sandbox. Invariants (I-10, I-12, I-13): a tool that
// mutates is issued only after its intent is recorded, under one call id for ever; every
// tool use gets exactly one answer, recorded before the next model call; and the
// loop can go on from any point between two records, knowing nothing but the
// conversation it is given.
package loop
