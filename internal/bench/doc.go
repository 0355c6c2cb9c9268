// Package bench measures a real server and the parts below it, and compares the figures with the
// limits (gates) that the project promises.
//
// cmd/holdfast uses it. It starts the holdfast binary as a child process to measure what a user
// notices, or to see whether it grows in a long run, and calls the store and the local driver in this process to measure the parts below.
// Invariant: a figure keeps every raw sample and names how its value is computed from them, and the verdict is that
// of the worst run.
package bench
