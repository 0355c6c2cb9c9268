// Package usage knows how programs read their arguments: which options they have,
// which of those take values, and what a value or an operand is to the program: a
// file that it reads, one that it writes, a directory that it changes to, a program
// that it runs. It also reads the languages of sed and awk as far as is needed to
// see files and programs in them.
//
// The tables are in programs.txt and git.txt, one program a paragraph; the head of
// programs.txt explains the form. The checker (sandbox/check) imports the package;
// it imports the standard library only. Invariant: nothing here decides. An option
// that is not in a table is reported as unknown, and the caller chooses what that
// means: nothing for a denial, a question for an allowance.
package usage
