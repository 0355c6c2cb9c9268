package files

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// A listing ends after watchEntries directory entries, watchBytes bytes of paths, or watchTime.
	watchEntries = 100_000
	watchBytes   = 8 << 20
	watchTime    = 2 * time.Second
	// tick is longer than the longest time in which two changes of a file can get the same time stamp.
	tick = 20 * time.Millisecond
)

// listing is a list of the files in the workspace, with the state of each.
type listing struct {
	// files maps the path of each file, relative to the workspace, to a hash of the file's stamp.
	files map[string]uint64
	// unseen is the reason why the listing may lack files; empty if the listing is complete.
	unseen string
	// newest is the latest ctime of all files in the listing.
	newest time.Time
}

// stamp holds values of a file of which at least one differs after the file was written, replaced, or
// given other permissions. A program can set mtime as it likes, but not ctime.
type stamp struct {
	ino, mode uint64
	size      int64
	// written (mtime) and changed (ctime) are in nanoseconds.
	written, changed int64
}

// Watch lists the regular files and symlinks of the workspace. The function that it returns lists
// them again and returns the differences. Watch skips directories named .git and does not follow
// symlinks. A listing ends early after 100,000 entries, 8 MiB of paths or 2 seconds. If one of the
// two listings is incomplete, only files that are in both are compared, and Unseen has the reason.
func (f *FS) Watch() func() wire.Changes {
	seed := maphash.MakeSeed()
	before := f.list(seed)
	if d := tick - f.now().Sub(before.newest); d > 0 && d <= tick {
		// A file that was changed less than tick ago could be changed again and get the same time stamp.
		time.Sleep(d)
	}
	return func() wire.Changes { return f.compare(before, f.list(seed)) }
}

func (f *FS) list(seed maphash.Seed) listing {
	l := listing{files: map[string]uint64{}}
	root, err := f.door.resolveDir("file.watch", "")
	if err != nil {
		return listing{unseen: err.Error()}
	}
	w := &watcher{walk: f.newWalk(), listing: &l, seed: seed}
	w.left = min(w.left, watchEntries)
	w.deadline = w.now().Add(min(f.maxTime, watchTime))
	defer w.end()
	if err := w.begin("file.watch", "", root); err != nil {
		return listing{unseen: err.Error()}
	}
	if err := w.dir(""); err != nil {
		l.unseen = fail("file.watch", ".", err).Error()
	}
	if w.truncated {
		l.unseen = fmt.Sprintf("the workspace has more than %d entries or %d MiB of names, or listing it takes longer than %s", watchEntries, watchBytes>>20, watchTime)
	}
	return l
}

type watcher struct {
	*walk
	*listing
	seed  maphash.Seed
	bytes int
}

// dir lists a directory and the directories below it. rel is the path of the directory relative to
// the workspace: empty, or with a slash at its end.
func (w *watcher) dir(rel string) error {
	fd, err := w.open(rel)
	if err != nil {
		return err
	}
	entries, err := w.entries(fd)
	for _, e := range entries {
		if w.truncated || w.late() {
			break
		}
		if e.kind == kindFile || e.kind == kindLink {
			w.file(fd, rel, e.name)
		}
	}
	// Close the directory before the listing descends: a deep tree must not use a descriptor for each level.
	_ = unix.Close(fd)
	defer w.done(entries)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if w.truncated || w.late() {
			return nil
		}
		if e.kind != kindDir || e.name == ".git" {
			continue
		}
		if err := w.dir(rel + e.name + "/"); err != nil && !errors.Is(err, syscall.ENOENT) {
			w.unseen = fmt.Sprintf("the directory %s cannot be listed: %s", EncodeName(rel+e.name), err.Error())
		}
	}
	return nil
}

func (w *watcher) file(dir int, rel, name string) {
	st, err := statAt(dir, name)
	if err != nil {
		return // the file was removed since its name was read
	}
	if w.bytes += len(rel) + len(name); w.bytes > watchBytes {
		w.truncated = true
		return
	}
	w.files[rel+name] = maphash.Comparable(w.seed, stamp{
		ino: st.Ino, mode: uint64(st.Mode), size: st.Size, written: st.Mtim.Nano(), changed: st.Ctim.Nano(),
	})
	if at := time.Unix(0, st.Ctim.Nano()); at.After(w.newest) {
		w.newest = at
	}
}

// compare returns the differences between two listings, sorted by path.
func (f *FS) compare(before, after listing) wire.Changes {
	out := wire.Changes{Unseen: cmp.Or(after.unseen, before.unseen)}
	whole := out.Unseen == ""
	var found []wire.Change
	for path, now := range after.files {
		switch was, known := before.files[path]; {
		case known && was != now:
			found = append(found, wire.Change{Path: path, Kind: wire.ChangeChanged})
		case !known && whole:
			found = append(found, wire.Change{Path: path, Kind: wire.ChangeCreated})
		}
	}
	if whole {
		for path := range before.files {
			if _, left := after.files[path]; !left {
				found = append(found, wire.Change{Path: path, Kind: wire.ChangeRemoved})
			}
		}
	}
	slices.SortFunc(found, func(a, b wire.Change) int { return cmp.Compare(a.Path, b.Path) })
	if n := len(found) - wire.MaxChanges; n > 0 {
		found, out.More = found[:wire.MaxChanges], n
	}
	root, err := f.door.resolveDir("file.watch", "")
	if err != nil {
		return wire.Changes{Unseen: err.Error()}
	}
	for i := range found {
		found[i].Path = EncodeName(f.door.shown(paths.Join(root, found[i].Path)))
	}
	out.Files = found
	return out
}
