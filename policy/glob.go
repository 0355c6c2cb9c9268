package policy

import "path"

// segments reports whether a path matches a pattern, both split at slashes; `**` matches
// any number of segments. On a mismatch it extends only the latest `**`, because that one
// can match every segment that an earlier `**` could. So the work is at most the product
// of the two lengths.
func segments(pattern, p []string) bool { return segmentsBy(pattern, p, segment) }

// segmentsBy is segments with the given function to match a single segment.
func segmentsBy(pattern, p []string, segment func(pattern, name string) bool) bool {
	i, deep, from := 0, -1, 0
	for j := 0; j < len(p); {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			deep, from = i, j
			i++
		case i < len(pattern) && segment(pattern[i], p[j]):
			i++
			j++
		case deep < 0:
			return false
		default:
			// Retry with the latest ** matching one more segment.
			from++
			i, j = deep+1, from
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

func segment(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
