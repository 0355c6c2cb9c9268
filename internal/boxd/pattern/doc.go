// Package pattern matches paths with patterns: globs for searches, and masks for the paths that a
// request may not touch.
//
// Package files imports it; it imports the standard library and the vocabulary, and works on
// text only: it opens nothing. Invariants (I-19): compiling takes bounded time and memory
// whatever the pattern is, and matching takes at most one step for each pair of a segment
// and a component.
package pattern
