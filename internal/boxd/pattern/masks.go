package pattern

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// maxMasks is how many patterns CompileMasks accepts in one list.
const maxMasks = 1000

// Masks are patterns of absolute paths, each split into segments. They cover every path that matches
// one of the patterns, and every path below such a path.
type Masks [][]string

// anyDirs is the segment that stands for any number of directories.
const anyDirs = "**"

// CompileMasks compiles patterns. If one of them is invalid, it returns an error and no masks,
// because the paths that this pattern should protect are unknown.
func CompileMasks(patterns []string) (Masks, error) {
	bad := func(p, why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, "scope", "the pattern %s is invalid: %s", holdfast.Quote(p), why).
			WithHint("write an absolute path with * ? [a-z] and ** in it, as in /workspace/**/.env")
	}
	if len(patterns) > maxMasks {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "scope", "the file scope has %d path patterns, more than the allowed %d", len(patterns), maxMasks).
			WithHint("write fewer and wider patterns")
	}
	out := make(Masks, 0, len(patterns))
	for _, p := range patterns {
		switch {
		case len(p) > maxPattern:
			return nil, bad(p, "it is longer than 4096 bytes")
		case !strings.HasPrefix(p, "/"):
			return nil, bad(p, "it is not an absolute path")
		}
		segs := split(p)
		for _, s := range segs {
			if s == "." || s == ".." {
				return nil, bad(p, "it has a segment "+s)
			}
			if s == anyDirs {
				continue
			}
			if _, err := path.Match(s, ""); err != nil {
				return nil, bad(p, "a [ or a \\ is not closed in "+holdfast.Quote(s))
			}
		}
		out = append(out, segs)
	}
	return out, nil
}

// split returns the names of an absolute path.
func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// Cover reports whether an absolute path, or a directory above it, matches one of the patterns. For
// each pattern it takes at most one step for each pair of a segment and a name of the path.
func (m Masks) Cover(p string) bool {
	if len(m) == 0 {
		return false
	}
	names := split(p)
	return slices.ContainsFunc(m, func(segs []string) bool { return covers(segs, names) })
}

// covers is coversBy with path.Match as its match. It ignores errors of path.Match: CompileMasks has checked the segments.
func covers(segs, names []string) bool {
	return coversBy(segs, names, func(seg, name string) bool {
		ok, _ := path.Match(seg, name)
		return ok
	})
}

// coversBy reports whether the segments of a pattern match all names, or some names from the first on. It follows all
// possible matches at once: at[i] is true if the first i segments match the names before the present one.
func coversBy(segs, names []string, match func(seg, name string) bool) bool {
	at := make([]bool, len(segs)+1)
	at[0] = true
	skip := func() {
		for i, s := range segs {
			if at[i] && s == anyDirs {
				at[i+1] = true
			}
		}
	}
	skip()
	for _, name := range names {
		if at[len(segs)] {
			return true
		}
		// Go from the last segment to the first: at[i] must still have its value from before this name.
		for i := len(segs) - 1; i >= 0; i-- {
			s := segs[i]
			ok := false
			if at[i] && s != anyDirs {
				ok = match(s, name)
			}
			at[i+1] = ok || i+1 < len(segs) && segs[i+1] == anyDirs && at[i+1]
		}
		at[0] = len(segs) > 0 && segs[0] == anyDirs
		skip()
	}
	return at[len(segs)]
}
