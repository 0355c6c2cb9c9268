// Package cli describes the supported release of the Claude Code CLI: its tools and options, and
// its commands that a message may name.
//
// Package claude imports it, and package app for the list of tools. It imports folder, policy and
// the vocabulary. It only computes values. Invariant: the CLI is started with tools that
// policy knows, and takes no settings from its box (HZ-6).
package cli
