// Package ignore decides which paths of a tree git ignores, by the .gitignore files in the tree.
//
// Package snapshot uses it. Agents write .gitignore files, so that they are hostile input: files, patterns and the
// total cost are bounded, and a match takes time in proportion to the length of the pattern times that of the path. Only .gitignore
// files count, neither git's index nor other lists of patterns: a tracked file that a pattern matches is ignored.
package ignore
