// Package cli holds what this server knows of the Claude Code CLI's release: its tools and
// options, and its commands that a message may name.
//
// The runtime in claude imports it, and the wiring for the list of tools. It imports policy
// and the agent's folder, and does nothing. Invariant: the CLI is started with no tool that
// policy does not know, and takes no settings from its box (HZ-6).
package cli
