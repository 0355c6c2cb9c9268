package tree

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// writers is how many goroutines of a restore write files.
const writers = 2

// Restore writes a stored tree into the new directory dir, whose parent only the server can write, and returns when it
// is durable; conflict if dir exists. After an error while it fills the new directory it removes dir again, if it can.
func Restore(ctx context.Context, src Source, root pack.ID, dir string, owners Owners) error {
	e, err := top(ctx, src, root)
	if err != nil {
		return err
	}
	d, err := rooted.MakeTree(dir)
	if err != nil {
		return err
	}
	r := &restorer{src: src, owners: owners, top: d, jobs: make(chan job, writers)}
	if err = r.run(ctx, &openDir{dir: d, entry: e}); err == nil {
		err = rooted.Sync(dir)
	}
	if err != nil {
		return errors.Join(err, rooted.RemoveAll(dir))
	}
	return nil
}

// restorer makes directories, links and empty files in the order of a walk. Its writers fill the files.
type restorer struct {
	src    Source
	owners Owners
	top    rooted.Dir
	jobs   chan job
	links  linker
}

// job is a file that a writer fills.
type job struct {
	to    rooted.Handle
	entry Entry
	in    *openDir
}

// openDir is a directory that is being filled. It gets its attributes when everything in it is done.
type openDir struct {
	dir   rooted.Dir
	entry Entry
	above *openDir
	// left counts the entries of the directory that are not done. When all of them are made, one more is subtracted: so
	// the directory is done when left is below 0.
	left atomic.Int64
}

func (r *restorer) run(ctx context.Context, top *openDir) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.links.top = r.top
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			// After an error no more files are written, but each still counts as done, so that the directories are closed.
			for j := range r.jobs {
				var err error
				if ctx.Err() == nil {
					err = r.write(ctx, j)
				}
				j.to.Close()
				if err = errors.Join(err, r.release(ctx, j.in)); err != nil {
					stop(err)
				}
			}
		})
	}
	if err := errors.Join(r.fill(ctx, top, 0), r.release(ctx, top)); err != nil {
		stop(err)
	}
	r.links.close()
	close(r.jobs)
	all.Wait()
	return context.Cause(ctx)
}

// release counts one entry of d as done, and finishes d, and each directory above it, if all its entries are done.
func (r *restorer) release(ctx context.Context, d *openDir) (err error) {
	for ; d != nil && d.left.Add(-1) < 0; d = d.above {
		if err == nil && ctx.Err() == nil {
			err = d.dir.Set(attr(d.entry, r.owners), true)
		}
		d.dir.Close()
	}
	return err
}

// attr returns the attributes that a restored entry gets.
func attr(e Entry, owners Owners) rooted.Attr {
	user := owners.Agent
	if e.Owner == OwnerBoxd {
		user = owners.Boxd
	}
	return rooted.Attr{Mode: uint32(e.Mode), UID: user.UID, GID: user.GID, Mtime: e.Mtime, Xattrs: e.Xattrs}
}

func (r *restorer) fill(ctx context.Context, d *openDir, depth int) error {
	return eachDifference(ctx, r.src, ref{}, d.entry.content, func(_, e Entry) error { return r.make(ctx, d, e, depth+1) })
}

func (r *restorer) make(ctx context.Context, d *openDir, e Entry, depth int) error {
	switch {
	case depth > MaxDepth:
		return errDeep
	case e.Link != "":
		return r.links.link(d.dir, e)
	case e.Type == Symlink:
		return d.dir.Symlink(e.Target, e.Name, attr(e, r.owners))
	case e.Type == File:
		to, err := d.dir.Create(e.Name)
		if err != nil {
			return err
		}
		d.left.Add(1)
		r.jobs <- job{to, e, d}
		return nil
	}
	dir, err := d.dir.Mkdir(e.Name)
	if err != nil {
		return err
	}
	d.left.Add(1)
	sub := &openDir{dir: dir, entry: e, above: d}
	return errors.Join(r.fill(ctx, sub, depth), r.release(ctx, sub))
}

func (r *restorer) write(ctx context.Context, j job) error {
	if err := writeContent(ctx, r.src, j.entry, j.to); err != nil {
		return err
	}
	return j.to.Set(attr(j.entry, r.owners), true)
}

// writeContent fills a new file. It leaves holes where the stored file has some.
func writeContent(ctx context.Context, src Source, e Entry, to rooted.Handle) error {
	p := newPieces(src, e)
	var off, end int64
	for {
		data, size, err := p.next(ctx)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if data != nil {
			if _, err := to.WriteAt(data, off); err != nil {
				return err
			}
			end = off + size
		}
		off += size
	}
	if end < e.Size {
		return to.Truncate(e.Size)
	}
	return nil
}

// linker makes hard links to files that were made before.
type linker struct {
	top  rooted.Dir
	from rooted.Dir
	path string
}

func (l *linker) link(in rooted.Dir, e Entry) error {
	if dir := path.Dir(e.Link); dir != l.path {
		l.close()
		from := l.top
		if dir != "." {
			var err error
			if from, err = l.top.Below(dir); err != nil {
				return dangling(e, err)
			}
		}
		l.from, l.path = from, dir
	}
	return dangling(e, in.Link(l.from, path.Base(e.Link), e.Name))
}

func (l *linker) close() {
	if l.path != "" && l.path != "." {
		l.from.Close()
	}
	l.path = ""
}

// dangling returns the error for a hard link whose other name does not exist.
func dangling(e Entry, err error) error {
	if holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindConflict) {
		return refuse("%s is a hard link to %s: %w", holdfast.Quote(e.Name), holdfast.Quote(e.Link), err)
	}
	return err
}
