// Package permit gives what tool calls of a session are decided by: the server's policy, with what
// the agent's version, the session's rules and its workspace add to it, and where symlinks among the
// session's files lead.
//
// The engine imports it. It reads settings, rules and files, and writes nothing. Invariant: what
// lies in a workspace, where the agent can write, only tightens; where it cannot be read, nothing
// is allowed.
package permit
