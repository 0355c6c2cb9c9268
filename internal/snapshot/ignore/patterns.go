package ignore

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// Patterns returns a function that reports whether a path matches one of the patterns of snapshots.exclude; invalid if
// a pattern cannot be read. A pattern without a slash, except at its end, matches at every depth.
func Patterns(patterns []string) (func(path string) bool, error) {
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

// excludesFile is a file, in a directory of the session, with all patterns that snapshots.exclude has had since its
// first snapshot.
const excludesFile = "left-out"

// Remembered returns all patterns that Remember has recorded in the directory dir.
func Remembered(dir string) (list []string, err error) {
	data, err := os.ReadFile(filepath.Join(dir, excludesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "snapshot", "cannot read which paths the snapshots of a session left out: %w", err)
	}
	return list, nil
}

// Remember records patterns in a directory of the session, next to those recorded before. It is called before a scan
// uses the patterns.
func Remember(dir string, patterns []string) error {
	known, err := Remembered(dir)
	if err != nil {
		return err
	}
	all := known
	for _, p := range patterns {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	if len(all) == len(known) {
		return nil
	}
	data, err := json.Marshal(all)
	if err == nil {
		err = durable.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(dir, excludesFile), durable.Bytes(data))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "cannot record which paths the snapshots of a session leave out: %w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}
