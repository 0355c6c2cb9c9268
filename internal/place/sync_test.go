package place_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/internal/place"
)

// lending are scopes with these trees.
type lending struct {
	place.Private
	trees []string
}

func (l lending) Trees(context.Context) ([]string, error) { return l.trees, nil }

// syncing records which directories are synced, and fails for some.
type syncing struct {
	place.Files
	dirs  *[]string
	fails map[string]error
}

func (s syncing) Sync(_ context.Context, dir string) error {
	*s.dirs = append(*s.dirs, dir)
	return s.fails[dir]
}

// TestI34_SyncReachesLentDirectories: the trees of workspaces may be on other disks than the data directory.
func TestI34_SyncReachesLentDirectories(t *testing.T) {
	broken := errors.New("input/output error")
	for name, c := range map[string]struct {
		fails map[string]error
		want  error
	}{
		"all there":       {},
		"one removed":     {fails: map[string]error{"/home/a": &fs.PathError{Err: fs.ErrNotExist}}},
		"a disk fails":    {map[string]error{"/home/a": broken}, broken},
		"no data at all":  {map[string]error{"/data": fs.ErrNotExist}, fs.ErrNotExist},
		"the last, alone": {map[string]error{"/home/b": broken}, broken},
	} {
		var dirs []string
		b := place.New(place.Config{Dir: "/data", Files: syncing{dirs: &dirs, fails: c.fails}, Scopes: lending{trees: []string{"/home/a", "/home/b"}}}, nil)
		if err := place.Sync(t.Context(), b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if want := []string{"/data", "/home/a", "/home/b"}; !slices.Equal(dirs, want) {
			t.Errorf("%s: synced %v", name, dirs)
		}
	}
}
