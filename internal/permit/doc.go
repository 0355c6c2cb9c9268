// Package permit builds the policy that decides a session's tool calls: the server's policy with
// the additions of the agent version, of the session's rules and of its workspace. It also resolves
// symlinks among the session's files, and makes the changes of permissions that decisions ask for.
//
// The engine and internal/app import it. It reads settings, rules and files, and writes nothing itself. Invariant:
// settings in a workspace, where the agent can write, only tighten the policy; if they cannot be
// read, every call is denied.
package permit
