package tree

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Apply changes the tree in dir from the stored tree from to the stored tree to, in place: it writes only what differs,
// and each new file under another name, which it then renames. It returns when all is durable. No process may change
// the tree meanwhile. After an error the tree may be partly changed, and Apply may be called again.
func Apply(ctx context.Context, src Source, from, to pack.ID, dir string, owners Owners) error {
	if from == to {
		return nil
	}
	old, err := top(ctx, src, from)
	if err != nil {
		return err
	}
	now, err := top(ctx, src, to)
	if err != nil {
		return err
	}
	d, err := rooted.OpenTree(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	w := &writer{src, to, owners, linker{top: d}}
	defer w.links.close()
	if err := w.change(ctx, d, old.content, now.content, 0); err != nil {
		return err
	}
	if err := d.Set(attr(now, owners), false); err != nil {
		return err
	}
	return rooted.Sync(dir)
}

// writer changes an existing tree entry by entry, in the order of a walk.
type writer struct {
	src    Source
	to     pack.ID // the id of the stored tree to which the writer changes the files
	owners Owners
	links  linker
}

// change turns the entries of one list into those of another. The caller sets the attributes of their directory.
func (w *writer) change(ctx context.Context, d rooted.Dir, from, to ref, depth int) error {
	return eachDifference(ctx, w.src, from, to, func(old, now Entry) error {
		return w.one(ctx, d, old, now, depth+1)
	})
}

// one turns one entry from old into now. The zero Entry stands for an entry that does not exist.
func (w *writer) one(ctx context.Context, d rooted.Dir, old, now Entry, depth int) error {
	switch {
	case depth > MaxDepth:
		return errDeep
	case now.Type == 0:
		return d.Remove(old.Name)
	case old.Type == Dir && now.Type == Dir:
		sub, err := d.Open(now.Name)
		if err == nil {
			defer sub.Close()
			if err := w.change(ctx, sub, old.content, now.content, depth); err != nil {
				return err
			}
			return sub.Set(attr(now, w.owners), false)
		}
		if !missing(err) {
			return err
		}
	case old.Type == File && now.Type == File && old.SameContent(now) && old.Link == now.Link:
		if done, err := w.attributes(d, now); done || err != nil {
			return err
		}
	}
	return w.place(ctx, d, now, depth)
}

// missing reports whether an error says that an entry does not exist, or is something else than it should be.
func missing(err error) bool {
	return holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindConflict)
}

// attributes sets the attributes of an existing file. It returns false if no regular file of that size is there.
func (w *writer) attributes(d rooted.Dir, e Entry) (bool, error) {
	h, err := d.Find(e.Name)
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer h.Close()
	now, err := h.Stat()
	if err != nil || !now.Mode.IsRegular() || now.Size != e.Size {
		return false, err
	}
	return true, h.Set(attr(e, w.owners), false)
}

// place makes an entry, a directory with everything in it, and removes what has its name.
func (w *writer) place(ctx context.Context, d rooted.Dir, e Entry, depth int) error {
	if e.Link == "" && e.Type != Dir {
		return w.replace(ctx, d, e)
	}
	// Renaming a new hard link over an old name of the same file would do nothing, so the old name is removed first.
	if err := d.Remove(e.Name); err != nil {
		return err
	}
	if e.Link != "" {
		return w.links.link(d, e)
	}
	sub, err := d.Mkdir(e.Name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := w.change(ctx, sub, ref{}, e.content, depth); err != nil {
		return err
	}
	return sub.Set(attr(e, w.owners), true)
}

// replace writes a file or a symlink under another name, and renames it when it is complete. The name contains the
// tree's id: so the next Apply to this tree removes what a killed one left, and no entry of the tree can have it.
func (w *writer) replace(ctx context.Context, d rooted.Dir, e Entry) (err error) {
	temp := ".holdfast-" + w.to.String()
	if err := d.Remove(temp); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Remove(temp))
		}
	}()
	if e.Type == Symlink {
		err = d.Symlink(e.Target, temp, attr(e, w.owners))
	} else {
		err = w.file(ctx, d, temp, e)
	}
	if err != nil {
		return err
	}
	if now, serr := d.Lstat(e.Name); serr == nil && now.Mode.IsDir() {
		if err := d.Remove(e.Name); err != nil {
			return err
		}
	}
	return rooted.Move(d, temp, d, e.Name)
}

func (w *writer) file(ctx context.Context, d rooted.Dir, name string, e Entry) error {
	h, err := d.Create(name)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := writeContent(ctx, w.src, e, h); err != nil {
		return err
	}
	return h.Set(attr(e, w.owners), true)
}

// Mend restores single entries of a stored tree into dir, where something is missing or damaged. choose is called for
// each entry with what is in its place now (Mode 0 if nothing is), and reports whether Mend restores the entry. A
// directory that exists gets its attributes back and keeps what is in it. What is stored below a directory that is
// missing and was not chosen is left out. Mend removes only what has the name of an entry that it restores. It returns
// the paths that it restored, in the order of a walk, when they are durable. No process may change the tree meanwhile.
func Mend(ctx context.Context, src Source, root pack.ID, dir string, owners Owners,
	choose func(path string, stored Entry, now rooted.Entry) bool,
) ([]string, error) {
	e, err := top(ctx, src, root)
	if err != nil {
		return nil, err
	}
	d, err := rooted.OpenTree(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	m := &mender{writer: &writer{src, root, owners, linker{top: d}}, choose: choose, done: map[string]bool{}}
	defer m.writer.links.close()
	if err := m.fill(ctx, d, ".", e, 0); err != nil || len(m.paths) == 0 {
		return m.paths, err
	}
	return m.paths, rooted.Sync(dir)
}

type mender struct {
	writer *writer
	choose func(path string, stored Entry, now rooted.Entry) bool
	paths  []string
	done   map[string]bool
}

// fill restores the chosen entries below the directory e, which is opened as d.
func (m *mender) fill(ctx context.Context, d rooted.Dir, path string, e Entry, depth int) error {
	return eachDifference(ctx, m.writer.src, ref{}, e.content, func(_, e Entry) error {
		return m.one(ctx, d, join(path, e.Name), e, depth+1)
	})
}

func (m *mender) one(ctx context.Context, d rooted.Dir, path string, e Entry, depth int) error {
	now, err := d.Lstat(e.Name)
	switch {
	case depth > MaxDepth:
		return errDeep
	case missing(err):
		now = rooted.Entry{}
	case err != nil:
		return err
	}
	chosen := m.choose(path, e, now)
	if chosen {
		m.paths, m.done[path] = append(m.paths, path), true
	}
	switch {
	case e.Type == Dir && (chosen || now.Mode.IsDir()):
		return m.dir(ctx, d, path, e, now, chosen, depth)
	case !chosen || e.Type == Dir:
		return nil
	case e.Link != "" && !m.done[e.Link]:
		// The first name of this file was not restored, and may have other content now: write a file, not a hard link.
		e.Link = ""
	}
	return m.writer.place(ctx, d, e, depth)
}

func (m *mender) dir(ctx context.Context, d rooted.Dir, path string, e Entry, now rooted.Entry, chosen bool, depth int) (err error) {
	var sub rooted.Dir
	if now.Mode.IsDir() {
		sub, err = d.Open(e.Name)
	} else if err = d.Remove(e.Name); err == nil {
		sub, err = d.Mkdir(e.Name)
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := m.fill(ctx, sub, path, e, depth); err != nil || !chosen {
		return errors.Join(err, sub.Chmod(now.Mode))
	}
	return sub.Set(attr(e, m.writer.owners), false)
}
