package statcache

import (
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

const (
	// memoEntries is how many entries a tree may have for which a memo is made, with the top, and memoBytes is how many
	// bytes of memory the memo may need.
	memoEntries, memoBytes = 64, 8 << 10
	// noteBytes is about how many bytes of memory a note needs, not counting its name.
	noteBytes = 64
)

// Memo holds the stats of all entries of a small tree, from a scan that found the content of Head.Root. Look compares
// them with the tree, and so finds out with a few system calls whether a scan would find a change. A memo does not
// change, and it may be used for as long as the stat cache of the scan might: not after a power cut.
//
// A memo has the same right to take an entry for unchanged as a scan with a stat cache has: the scan that read the
// entry saw that its ctime was old enough, so any later change has given it another one. That holds for
//   - the content, the mode, the owner, the extended attributes and the number of names of a file;
//   - the names in a directory, which is why a look does not list them. An excluded entry is not noted, but it cannot
//     come or go without a change of its directory, and then a scan decides;
//   - the first name of a file with several names: names change only in directories, and all of these are noted.
//
// The scan must be one during which no process could write to the tree, or which wrote back the pages of the files that
// it read. Then processes may be alive at a look: each write, and the next store through a mapping, changes the ctime
// before the content.
//
// What is mounted over an entry is refused as in a walk. What is mounted over the top has another device or inode.
type Memo struct {
	// Head has the root of the tree, and the place at which the next scan or look begins to read files again.
	Head Head
	// dev is the device of the tree's top directory.
	dev uint64
	// dirs are the directories in the order of a walk, the top first.
	dirs []notedDir
	size int
}

// note is the stat of an entry of the given name. The name of a directory is its path.
type note struct {
	name string
	stat Stat
}

// notedDir is a directory with the files and symlinks in it.
type notedDir struct {
	note
	leaves []note
}

// Memo returns a memo of the tree of a cache, if a scan found nothing to add to the cache. h is the cache's head after
// that scan, dev is the device of the top. Memo returns nil if the tree is not small, if the cache cannot be read, or
// if a record is flagged as Again, Recent or Moved.
func (c *Cache) Memo(dev uint64, h Head) *Memo {
	if c.Head.base > 4*memoBytes { // the tree is not small: a record is longer than a note, but not four times as long
		return nil
	}
	m := &Memo{Head: h, dev: dev}
	records, entries := Merge(c.Runs()...), 0
	for err := records.There(); records.Rec != nil || err != nil; err = records.There() {
		switch {
		case err != nil:
			return nil
		case records.Rec.Is(End):
			continue
		case records.Rec.Flags != 0:
			return nil
		}
		path := Path(records.Rec.Key)
		entries, m.size = entries+1, m.size+len(path)+noteBytes
		if entries > memoEntries || m.size > memoBytes {
			return nil
		}
		if !m.add(path, records.Rec.Stat) {
			return nil
		}
	}
	if entries == 0 {
		return nil
	}
	return m
}

// add adds the entry that comes next in a walk. It returns false if the entry's directory was not added before.
func (m *Memo) add(path string, st Stat) bool {
	if fs.FileMode(st.Mode).IsDir() {
		m.dirs = append(m.dirs, notedDir{note: note{path, st}})
		return true
	}
	in, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		in, name = path[:i], path[i+1:]
	}
	for i := len(m.dirs) - 1; i >= 0; i-- {
		if d := &m.dirs[i]; d.name == in {
			d.leaves = append(d.leaves, note{name, st})
			return true
		}
	}
	return false
}

// Size returns about how many bytes the memo needs in memory.
func (m *Memo) Size() int { return m.size }

// Look returns the memo for the next look if a scan of dir would find that nothing has changed, and would read no file
// again. Otherwise, and after any error, it returns nil: then a scan is necessary, which reads files again from Head
// on.
func (m *Memo) Look(dir string, now time.Time) *Memo {
	next := NextRehash(m.Head, now)
	if m.due(next) || !m.holds(dir) {
		return nil
	}
	out := *m
	out.Head = next.Head
	return &out
}

// due reports whether r selects a file of the memo to be read again.
func (m *Memo) due(r Rehash) bool {
	for i := range m.dirs {
		for _, n := range m.dirs[i].leaves {
			if fs.FileMode(n.stat.Mode).IsRegular() && r.Due(n.stat.Ino) {
				return true
			}
		}
	}
	return false
}

// holds reports whether each entry of the memo still has the same stat in the tree dir.
func (m *Memo) holds(dir string) bool {
	top, err := rooted.OpenTree(dir)
	if err != nil {
		return false
	}
	defer top.Close()
	now, err := top.Stat()
	if err != nil || now.Dev != m.dev || !m.dirs[0].same(top, now) {
		return false
	}
	for i := range m.dirs[1:] {
		if d := &m.dirs[1+i]; !d.below(top) {
			return false
		}
	}
	return true
}

// below reports whether the directory d.name below top, and the files and symlinks in it, have the noted stats.
func (d *notedDir) below(top rooted.Dir) bool {
	at, err := top.Below(d.name)
	if err != nil {
		return false
	}
	defer at.Close()
	now, err := at.Stat()
	return err == nil && d.same(at, now)
}

// same reports whether an open directory has the stat of d, and its files and symlinks have theirs.
func (d *notedDir) same(at rooted.Dir, now rooted.Entry) bool {
	if StatOf(now) != d.stat {
		return false
	}
	for i := range d.leaves {
		n := &d.leaves[i]
		if now, err := at.Entry(n.name); err != nil || StatOf(now) != n.stat {
			return false
		}
	}
	return true
}
