// Package roottree opens directories of root of the host for boxes, whose processes are never root.
//
// The driver local imports it. Invariant (HZ-8): a directory is opened only if it is the one that the caller describes,
// and if no file in it gives other users root's rights.
package roottree
