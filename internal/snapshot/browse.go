package snapshot

import (
	"archive/tar"
	"context"
	"io"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/gitpatch"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
	"github.com/holdfast-run/holdfast/internal/snapshot/told"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

const mostListed = 10_000 // how many entries of a directory ListFiles returns at most

// open returns the files of a checkpoint as the path rules of the session's box show them, and the entry to which the
// path name of a request leads there, with its path in the box. It follows a symlink at the end of the path if last is true.
func (p *Points) open(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string, last bool) (v *view, at string, e tree.Entry, err error) {
	_, files, err := p.Find(ctx, row, id)
	if err != nil {
		return nil, "", e, err
	}
	src, err := p.source(ctx, journal.Checkpoint{}, files)
	if err != nil {
		return nil, "", e, err
	}
	if v, err = p.view(ctx, row, src, files); err == nil {
		at, e, err = v.follow(ctx, inBox(name), last)
	}
	return v, at, e, err
}

// inBox returns a path of a request as a path in the box. A path that begins with ~/ is in the home directory.
func inBox(name string) string {
	switch {
	case name == "~" || strings.HasPrefix(name, "~/"):
		return places[1] + name[1:]
	case path.IsAbs(name):
		return name
	}
	return places[0] + "/" + name
}

// ReadFile writes a file of a checkpoint to w; it follows symlinks in the checkpoint. It returns invalid for a
// directory, denied for a file that a path rule denies, and not_found for one that the rules do not let the session
// read.
func (p *Points) ReadFile(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string, w io.Writer) error {
	v, at, e, err := p.open(ctx, row, id, name, true)
	if err != nil {
		return err
	}
	if e.Type != tree.File {
		return holdfast.Errorf(holdfast.KindInvalid, "checkpoint.files", "the path %s is a directory in the checkpoint, not a file", holdfast.Quote(name))
	}
	return v.copy(ctx, at, w)
}

func (v *view) copy(ctx context.Context, at string, w io.Writer) error {
	i, below, _ := v.tree(at)
	_, r, err := tree.Read(ctx, v.src, v.roots[i], below)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	return err
}

// ListFiles lists a directory of a checkpoint, or one file; it follows symlinks as ReadFile does. It lists no hidden
// path.
func (p *Points) ListFiles(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string) (holdfast.FileList, error) {
	out := holdfast.FileList{Entries: []holdfast.FileInfo{}}
	v, at, e, err := p.open(ctx, row, id, name, true)
	if err != nil {
		return out, err
	}
	if e.Type != tree.Dir {
		out.Entries = append(out.Entries, fileInfo(name, e))
		return out, nil
	}
	for e, err := range v.list(ctx, at) {
		if err != nil {
			return out, err
		}
		if out.Truncated = len(out.Entries) == mostListed; out.Truncated {
			break
		}
		out.Entries = append(out.Entries, fileInfo(e.Name, e))
	}
	return out, nil
}

// fileInfo returns an entry of a checkpoint in the form that lists of the files in a running box have.
func fileInfo(name string, e tree.Entry) holdfast.FileInfo {
	text := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return holdfast.FileInfo{
		Path: text(name), Type: map[tree.Type]string{tree.File: "file", tree.Dir: "dir", tree.Symlink: "symlink"}[e.Type],
		Size: e.Size, Mode: uint32(e.Mode), ModTime: time.Unix(0, e.Mtime).UTC(), Target: text(e.Target),
	}
}

// PackFiles writes a file or symlink of a checkpoint, or a directory with everything in it, to w as a tar archive. It
// calls begin before the first byte, with true for a directory. It does not follow a symlink at the end of the path. It
// leaves out what the path rules hide in a directory. Hard links become files of their own.
func (p *Points) PackFiles(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string, w io.Writer, begin func(dir bool)) error {
	v, at, e, err := p.open(ctx, row, id, name, false)
	if err != nil {
		return err
	}
	begin(e.Type == tree.Dir)
	a := &archive{ctx: ctx, v: v, tw: tar.NewWriter(w)}
	if e.Type == tree.Dir {
		err = a.dir(at, "", e)
	} else {
		err = a.one(at, path.Base(at), e)
	}
	if err == nil {
		err = a.tw.Close()
	}
	return err
}

type archive struct {
	ctx context.Context //nolint:containedctx // the context of one call of PackFiles
	v   *view
	tw  *tar.Writer
}

func (a *archive) header(h tar.Header, e tree.Entry) error {
	h.Mode, h.ModTime = int64(e.Mode&0o777), time.Unix(0, e.Mtime).Truncate(time.Second)
	if err := a.tw.WriteHeader(&h); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "checkpoint.files", "the file %s cannot be put into an archive: %w", holdfast.Quote(h.Name), err)
	}
	return nil
}

// dir packs a directory with everything in it. name is its path in the archive with a slash at the end; "" for the top.
func (a *archive) dir(at, name string, e tree.Entry) error {
	if err := a.header(tar.Header{Typeflag: tar.TypeDir, Name: "./" + name}, e); err != nil {
		return err
	}
	for e, err := range a.v.list(a.ctx, at) {
		if err != nil {
			return err
		}
		below, one := path.Join(at, e.Name), name+e.Name
		if e.Type == tree.Dir {
			err = a.dir(below, one+"/", e)
		} else {
			err = a.one(below, one, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) one(at, name string, e tree.Entry) error {
	if e.Type == tree.Symlink {
		return a.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: e.Target}, e)
	}
	if err := a.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Size: e.Size}, e); err != nil {
		return err
	}
	return a.v.copy(a.ctx, at, a.tw)
}

// Diff writes the difference between two checkpoints to w. notes has lines that say which checkpoints were compared,
// and how much was left out. It returns not_found for an unknown checkpoint, conflict if the session has no checkpoint
// or one lacks the files, invalid for an unknown format.
func (p *Points) Diff(ctx context.Context, row journal.Row, c holdfast.CompareCheckpoints, w io.Writer) (notes string, err error) {
	from, to, err := p.sides(ctx, row, c)
	if err != nil {
		return "", err
	}
	src, err := p.source(ctx, from.files, to.files)
	if err != nil {
		return "", err
	}
	old, err := p.view(ctx, row, src, from.files)
	if err != nil {
		return "", err
	}
	now, err := p.view(ctx, row, src, to.files)
	if err != nil {
		return "", err
	}
	f, err := p.cfg.Boxes.Files(ctx, row)
	if err != nil {
		return "", err
	}
	if f.Borrowed {
		for _, side := range []point{from, to} {
			if side.files.ID != "" && side.files.Workspace == "" {
				return "", holdfast.Errorf(holdfast.KindConflict, "diff", "%s does not have the files of the directory %s, which was too large for a snapshot then", side.name, holdfast.Quote(f.path(0))).
					WithHint("choose another checkpoint: holdfast session checkpoints %s", row.ID)
			}
		}
	}
	d := &difference{old: old, now: now, trees: 1}
	if d.leaves, err = f.leaves(ctx, 0, src, old.roots[0], now.roots[0], to.files.Order < from.files.Order); err != nil {
		return "", err
	}
	if c.Home {
		d.trees = len(places)
	}
	sum, err := gitpatch.Write(ctx, w, d.changes(ctx), gitpatch.Options{Format: c.Format})
	if err != nil {
		return "", err
	}
	return strings.Join(append([]string{"compared " + from.name + " with " + to.name}, told.LeftOut(sum, d.hidden)...), "\n"), nil
}

type difference struct {
	old, now *view
	// trees is 1 if only the workspaces are compared, and 2 if the home directories are compared, too.
	trees int
	// hidden counts the changes that path rules hide.
	hidden int
	leaves *ignore.Differences
}

func (d *difference) changes(ctx context.Context) iter.Seq2[gitpatch.Change, error] {
	return func(yield func(gitpatch.Change, error) bool) {
		for i := range d.trees {
			for c, err := range tree.Patch(ctx, d.old.src, d.old.roots[i], d.now.roots[i]) {
				left := false
				if err == nil && i == 0 {
					left, err = d.leaves.LeftOut(c.Path, c.Old.Mode == gitpatch.Absent, c.New.Mode == gitpatch.Absent,
						c.Old.Mode == gitpatch.EmptyDir || c.New.Mode == gitpatch.EmptyDir)
				}
				if left {
					continue
				}
				if err == nil {
					if at := path.Join(places[i], c.Path); d.old.hides(at) || d.now.hides(at) {
						if c.Old.Mode != gitpatch.Absent || c.New.Mode != gitpatch.Absent {
							d.hidden++
						}
						continue
					}
					if places[i] != places[0] {
						c.Path = "~/" + c.Path
					}
				}
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

type point struct {
	name  string
	files journal.Checkpoint
}

func (p *Points) sides(ctx context.Context, row journal.Row, c holdfast.CompareCheckpoints) (from, to point, err error) {
	var end holdfast.Checkpoint
	if c.To == "" {
		end, to.files, err = p.Here(ctx, row)
	} else {
		end, to.files, err = p.Find(ctx, row, c.To)
	}
	switch {
	case err != nil:
		return from, to, err
	case end.ID == "":
		return from, to, holdfast.Errorf(holdfast.KindConflict, "diff", "session %s has no checkpoint yet", row.ID).
			WithHint("each turn ends with a checkpoint: holdfast session checkpoints %s", row.ID)
	}
	to.name = told.Checkpoint(end)
	switch c.From {
	case "":
		from.files, err = p.before(ctx, row, end)
		from.name = told.Checkpoint(from.files.Checkpoint)
	case holdfast.CheckpointStart:
		from.files, err = p.first(ctx, row)
		from.name = told.Checkpoint(from.files.Checkpoint)
	default:
		var cp holdfast.Checkpoint
		cp, from.files, err = p.Find(ctx, row, c.From)
		from.name = told.Checkpoint(cp)
	}
	return from, to, err
}

// before returns the newest stored checkpoint on the branch of cp that is older than cp; the zero Checkpoint if none
// is.
func (p *Points) before(ctx context.Context, row journal.Row, cp holdfast.Checkpoint) (journal.Checkpoint, error) {
	spans, err := p.cfg.Branch(ctx, row.ID, cp.Seq)
	if err != nil {
		return journal.Checkpoint{}, err
	}
	for i := range spans {
		spans[i].Upto = min(spans[i].Upto, cp.Seq-1)
	}
	files, _, err := p.cfg.Store.Within(ctx, row.ID, spans)
	return files, err
}

// first returns the oldest stored checkpoint of a session, on whatever branch it is.
func (p *Points) first(ctx context.Context, row journal.Row) (first journal.Checkpoint, err error) {
	for {
		list, err := p.cfg.Store.Checkpoints(ctx, row.ID, first.Place(), coded.MostPage)
		if err != nil || len(list) == 0 {
			return first, err
		}
		first = list[len(list)-1]
	}
}
