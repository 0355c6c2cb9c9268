// Package gitpatch writes what differs between two trees of files: the names, a table of the changed
// lines, or a patch that git apply takes. The output looks like that of git diff --no-renames --full-index.
//
// internal/snapshot and its packages tree and told import it; tree gives it the changes between stored trees. It
// imports the vocabulary, a module that compares lines, and one that compresses.
//
// The output is untrusted: a patch holds the bytes of the files as they are, with control characters. Names are
// quoted as git quotes them, so that a name is always printable ASCII and never ends a line. A caller that shows a
// patch on a terminal makes it harmless first.
//
// Invariants: a patch changes exactly the old tree into the new one, or git apply refuses it as a whole. What git
// does not know is left out and counted: empty directories, and names that git refuses. The time for the
// comparison of two files and the memory for one call have a bound that does not depend on what the files hold.
//
// git apply refuses patches of 1 GiB and more, binary files in a repository with SHA-256 ids, and a directory in
// the place of a symlink that leads into a loop.
package gitpatch
