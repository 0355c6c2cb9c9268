// Package usage knows how programs read their arguments: their options, which of these
// take values, and the meaning of each value and operand: a file that is read, a file
// that is written, a directory to change to, a program to run. It also reads sed and
// awk programs far enough to find files and programs in them.
//
// The tables are in programs.txt and git.txt, one program a paragraph; the head of programs.txt explains the form. The
// checker (sandbox/check) imports the package, which imports the standard library only. Invariant: this package only
// reports and decides nothing. An option that is not in a table is reported as unknown; the caller decides what
// follows. For a program whose table is strict, the caller denies the line; for any other program, the caller only does
// not allow the line automatically.
package usage
