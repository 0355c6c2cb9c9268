package policy

import "path"

// segments matches a path against a pattern, both cut at slashes: `**` is any number of
// segments. Of several `**` only the last one is tried again: a later one can take
// every segment that an earlier one could. So the work is at most the product of the
// two lengths.
func segments(pattern, p []string) bool { return segmentsBy(pattern, p, segment) }

// segmentsBy is segments with its own matcher for one segment.
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
			// The last ** takes one segment more.
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
