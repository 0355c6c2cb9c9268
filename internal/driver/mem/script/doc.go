// Package script parses shell scripts into trees. It supports the part of the POSIX shell that
// tests and small scripts use.
//
// Only package mem imports it, which runs the trees. Invariants: everything outside of that part
// is a syntax error, never taken for something else; nesting is limited, because a model writes
// the scripts.
package script
