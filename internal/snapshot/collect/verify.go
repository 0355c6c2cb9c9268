package collect

import (
	"context"
	"io"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/tree"
)

// Report is the result of Verify.
type Report struct {
	// Checkpoints, Packs and Bytes count what was checked; Bytes is the size of the packs, Blobs the number of intact
	// blobs that the checkpoints need, where a blob that several nodes name may count several times.
	Checkpoints, Packs, Blobs int
	Bytes                     int64
	// Faults are the packs that are missing or damaged. Damaged are the checkpoints that lost content with them.
	Faults  []Fault
	Damaged []Damaged
}

// Damaged is a checkpoint that cannot be restored completely.
type Damaged struct {
	Checkpoint holdfast.CheckpointID
	Session    holdfast.SessionID
	Scope      holdfast.BoxID
	// Paths are the files and directories that cannot be read, at most 20. Those in the agent's home directory begin with
	// ~/.
	Paths []string
}

const maxPaths = 20

// Verify reads each pack of the checkpoints that the function which selects (of all checkpoints, if it is nil), and
// checks that each blob of these checkpoints is in one of the packs, unchanged. It changes no pack and no checkpoint,
// and reads each byte about once. Faults are in the report; an error means that the check could not be done. No other
// method of the Collector runs meanwhile.
func (c *Collector) Verify(ctx context.Context, which func(journal.Checkpoint) bool) (Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r Report
	f, err := c.facts(ctx)
	if err != nil {
		return r, err
	}
	if which != nil {
		f.Checkpoints = slices.DeleteFunc(f.Checkpoints, func(cp Checkpoint) bool { return !which(cp.Checkpoint) })
	}
	r.Checkpoints = len(f.Checkpoints)
	selected := map[int64]bool{}
	for _, fam := range families(f.Checkpoints) {
		if err := c.check(ctx, f, fam, &r); err != nil {
			return r, err
		}
		for _, n := range fam.packs {
			selected[n] = true
		}
	}
	r.Faults = slices.DeleteFunc(f.faults(), func(t Fault) bool { return !selected[t.Number] })
	return r, nil
}

// check verifies the packs and the trees of a family.
func (c *Collector) check(ctx context.Context, f *Facts, fam *family, r *Report) error {
	sound := map[pack.ID]bool{}
	var set pack.Set
	for _, n := range fam.packs {
		p := f.Packs[n]
		err := c.cfg.Packs.Verify(ctx, p.Name)
		if ctx.Err() != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "snapshot.verify", "the check of the snapshots was stopped before its end: %w", ctx.Err())
		}
		r.Packs++
		r.Bytes += p.Bytes
		set = append(set, p.Name)
		if err != nil {
			c.fault(f, n, err)
			continue
		}
		p.Fault = ""
		f.Packs[n] = p
		delete(c.damaged, p.Name)
		blobs, err := c.cfg.Packs.Blobs(p.Name)
		if err != nil {
			return err
		}
		for b := range blobs {
			sound[b.ID] = true
		}
	}
	src := c.cfg.Packs.In(set)
	look := newLook(src, func(ctx context.Context, id pack.ID) error {
		if sound[id] {
			return nil
		}
		_, err := src.Get(ctx, id) // read the blob itself: some blobs of a damaged pack may be intact
		return err
	})
	for _, sc := range fam.scopes {
		for _, cp := range slices.Backward(sc.checkpoints) {
			d := Damaged{cp.ID, cp.Session, cp.Scope, nil}
			bad := false
			for i, text := range []string{cp.Workspace, cp.Home} {
				if text == "" {
					continue
				}
				root := parse(text)
				whole, err := look.tree(ctx, root)
				if err != nil {
					return err
				}
				if !whole {
					bad = true
					unreadable(ctx, src, root, ".", []string{"", "~/"}[i], &d.Paths)
				}
			}
			if bad {
				r.Damaged = append(r.Damaged, d)
			}
		}
	}
	r.Blobs += look.blobs
	return nil
}

// unreadable adds to out the paths of the files and directories at and below dir that cannot be read, up to maxPaths.
func unreadable(ctx context.Context, src tree.Source, root pack.ID, dir, prefix string, out *[]string) {
	for e, err := range tree.List(ctx, src, root, dir) {
		path := e.Name
		if dir != "." {
			path = dir + "/" + e.Name
		}
		switch {
		case len(*out) == maxPaths:
			return
		case err != nil:
			*out = append(*out, prefix+dir)
			return
		case e.Type == tree.Dir:
			unreadable(ctx, src, root, path, prefix, out)
		case e.Type == tree.File:
			_, content, err := tree.Read(ctx, src, root, path)
			if err == nil {
				_, err = io.Copy(io.Discard, content)
			}
			if err != nil {
				*out = append(*out, prefix+path)
			}
		}
	}
}
