package snapshot

import (
	"strings"

	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
)

// excludes returns a function that reports whether a path matches one of the patterns.
func excludes(patterns []string) (func(path string) bool, error) {
	var all []*pattern.Pattern
	for _, p := range patterns {
		if !strings.Contains(strings.TrimRight(p, "/"), "/") {
			p = "**/" + p
		}
		compiled, err := pattern.Compile("snapshots.exclude", p)
		if err != nil {
			return nil, err
		}
		all = append(all, compiled)
	}
	return func(path string) bool {
		for _, p := range all {
			if p.Match(path) {
				return true
			}
		}
		return false
	}, nil
}
