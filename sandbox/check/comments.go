package check

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// continuedComment reports whether a comment in a program ends with a backslash. The parser takes the next line as
// part of such a comment, but a shell ends the comment with its line and runs the next line as a command.
func continuedComment(text string, f *syntax.File) bool {
	// at are the positions, in order, of each # that may begin a comment with a backslash at its end.
	var at []int
	from := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		if strings.HasSuffix(line, "\\\n") {
			for i := range len(line) {
				if line[i] == '#' && (i == 0 || strings.IndexByte(" \t;&|()<>`", line[i-1]) >= 0) {
					at = append(at, from+i)
				}
			}
		}
		from += len(line)
	}
	if len(at) == 0 {
		return false
	}
	// A # in a literal or between quotes begins no comment.
	quoted := make([]bool, len(at))
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
			first, _ := slices.BinarySearch(at, int(n.Pos().Offset()))
			for i := first; i < len(at) && at[i] < int(n.End().Offset()); i++ {
				quoted[i] = true
			}
		}
		return true
	})
	return slices.Contains(quoted, false)
}
