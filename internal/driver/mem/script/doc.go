// Package script reads shell scripts into trees: the part of the POSIX shell that tests and
// small scripts use.
//
// Only package mem imports it, which runs the trees. Invariants: everything outside of that
// part is a syntax error, never taken for something else; nesting is bounded, because the
// scripts are a model's.
package script
