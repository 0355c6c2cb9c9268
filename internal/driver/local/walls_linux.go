package local

import (
	"cmp"
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/mark"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// extraWalls is the key of a box's walls in its record.
const extraWalls = "walls"

// wallRecord is the part of a record about a box's walls (mounts for path rules). It suffices to
// compare them, to watch them, and to remove their placeholders after a crash of boxd or the server.
type wallRecord struct {
	Hash string `json:"hash"`
	// Workspace and Home are the session's directories, as paths of the host.
	Workspace string `json:"workspace"`
	Home      string `json:"home"`
	// Tool is the host uid that owns the placeholders; 0 for an ordinary user's box.
	Tool uint32 `json:"tool,omitempty"`
	// Planned are paths at which boxd may make placeholders. They are recorded before boxd starts.
	Planned []string `json:"planned,omitempty"`
	// Built are the walls that boxd reported as built.
	Built []wire.Wall `json:"built,omitempty"`
}

func wallsOf(r boxproc.Record) (wallRecord, bool) { return extra[wallRecord](r, extraWalls) }

// planWalls returns the record of a box's walls before they are built.
func planWalls(s sandbox.Spec, root bool) wallRecord {
	w := wallRecord{Hash: s.Walls.Hash(), Workspace: cmp.Or(s.Workspace, filepath.Join(s.Dir, "workspace")), Home: filepath.Join(s.Dir, "home")}
	if root {
		w.Tool = s.ToolUID
	}
	lists := slices.Concat([][]string{s.Walls.Masked, s.Walls.ReadOnly}, s.Walls.Writable)
	for _, p := range slices.Concat(lists...) {
		for p = path.Clean(p); w.inside(p); p = path.Dir(p) {
			w.Planned = append(w.Planned, p)
		}
	}
	slices.Sort(w.Planned)
	w.Planned = slices.Compact(w.Planned)
	return w
}

// inside reports whether a path of the box lies below the workspace or the home directory.
func (w *wallRecord) inside(p string) bool {
	return strings.HasPrefix(p, boxWorkspace+"/") || strings.HasPrefix(p, boxHome+"/")
}

// parent opens the host's directory that contains a path of the box. It follows no symlink.
func (w *wallRecord) parent(p string) (int, error) {
	top, rel := w.Workspace, ""
	if r, ok := strings.CutPrefix(p, boxWorkspace+"/"); ok {
		rel = r
	} else if r, ok := strings.CutPrefix(p, boxHome+"/"); ok {
		top, rel = w.Home, r
	} else {
		return -1, unix.ENOENT
	}
	return rooted.OpenDir(top, path.Dir(rel))
}

// otherWalls returns the wall records of all running boxes except this one.
func (d *Driver) otherWalls(box holdfast.BoxID) (out []wallRecord, err error) {
	records, err := d.Dir.List()
	for _, r := range records {
		w, ok := wallsOf(r)
		if !ok || r.Box == box {
			continue
		}
		alive, err := d.Dir.Alive(r)
		if err != nil {
			return nil, err
		}
		if alive {
			out = append(out, w)
		}
	}
	return out, err
}

// lockTree locks the workspace of a box with walls, until unlock is called; for a box without walls it does nothing.
// The lock is held while boxd makes the placeholders of the walls, and while they are removed, because another box
// with the same workspace may need the same placeholders.
func (d *Driver) lockTree(ctx context.Context, r boxproc.Record) (unlock func(), err error) {
	w, ok := wallsOf(r)
	if !ok {
		return func() {}, nil
	}
	return d.trees.Lock(ctx, holdfast.BoxID(w.Workspace))
}

// removePlaceholders removes the placeholders that boxd made for walls, once the box has ended, if they are empty.
// A file must have the placeholder's mark, and so must a directory that boxd did not report before it was killed.
//
// A placeholder stays if one of others, the records of the other running boxes, names it: without it that box would
// lose its wall. The last of these boxes removes it when it ends, except a directory without the mark that this last
// box did not make.
func (w *wallRecord) removePlaceholders(others []wallRecord) error {
	made := map[string]bool{}
	for _, p := range w.Planned {
		made[p] = false
	}
	for _, b := range w.Built {
		if b.Made {
			made[b.Path] = true
		}
	}
	paths := make([]string, 0, len(made))
	for p := range made {
		paths = append(paths, p)
	}
	// Remove what a directory contains before the directory.
	slices.Sort(paths)
	slices.Reverse(paths)
	var errs []error
	for _, p := range paths {
		if slices.ContainsFunc(others, func(o wallRecord) bool { return o.Workspace == w.Workspace && slices.Contains(o.Planned, p) }) {
			continue
		}
		// ENOENT: another box with the same directory may end at the same time and remove the placeholder.
		if err := w.removePlaceholder(p, made[p]); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot remove the placeholder %s of a path rule: %w", holdfast.Quote(p), err))
		}
	}
	return errors.Join(errs...)
}

func (w *wallRecord) removePlaceholder(p string, reported bool) error {
	dir, err := w.parent(p)
	if err != nil {
		return nil // the directory of the placeholder does not exist
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(p), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil
	}
	marked := mark.On(st.Mtim.Unix())
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if !marked && !reported {
			return nil
		}
		err = mark.Keep(dir, func() error { return unix.Unlinkat(dir, path.Base(p), unix.AT_REMOVEDIR) })
		if err == unix.ENOTEMPTY || err == unix.EEXIST {
			return nil
		}
		return err
	case unix.S_IFREG:
		if marked && st.Size == 0 && st.Nlink == 1 {
			return mark.Keep(dir, func() error { return unix.Unlinkat(dir, path.Base(p), 0) })
		}
	}
	return nil
}
