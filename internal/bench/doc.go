// Package bench measures a real server and the parts under it against the
// gates that the project promises, and says which hold.
//
// cmd/holdfast uses it. It starts the holdfast binary as a child process for
// what a user sees, and drives the store and the local driver in process for
// what lies below. Invariant: a figure is a percentile or a rate with its sample
// count, the verdict is that of the worst of the runs, and every raw sample is
// kept.
package bench
