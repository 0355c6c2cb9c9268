// Package permit says what a session may do as things stand: the server's policy, with what its
// agent's version, its own rules and its workspace add, and the links of its files, by which calls
// are judged.
//
// The engine imports it. It reads settings, rules and files, and writes nothing. Invariant: what
// lies in a workspace, where the agent can write, only tightens; where it cannot be read, nothing
// is allowed.
package permit
