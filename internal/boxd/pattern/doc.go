// Package pattern matches paths with patterns: globs for searches, and masks for the paths that a
// request may not touch.
//
// Package files, the configuration and the snapshots import it; it imports the standard library and
// the vocabulary. It works on texts only and opens no file. Invariants (I-19): the time and the
// memory to compile a pattern are bounded, whatever the pattern is; the match of a path takes at
// most one step for each pair of a segment of the pattern and a component of the path.
package pattern
