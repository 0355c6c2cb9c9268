// Package background runs work that reads many files with less of the processor's time than the rest of the server.
//
// Package snapshot uses it. Invariant: a thread whose priority was lowered serves nothing else.
package background
