package tree

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Change is one difference between two trees. If one of the trees does not have the path, its entry is the zero Entry.
type Change struct {
	Path     string
	Old, New Entry
}

// errDone ends a comparison whose caller stopped iterating.
var errDone = errors.New("the caller stopped the comparison")

// Diff returns the differences between two stored trees in the order of a walk. It does not read nodes that both trees
// have. The zero ID stands for a tree without files. After a directory that was added or removed comes everything in
// it. A directory of which only the content differs is not returned itself. An error ends the sequence.
func Diff(ctx context.Context, src Source, a, b pack.ID) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if a == b {
			return
		}
		old, err := side(ctx, src, a)
		if err == nil {
			var now Entry
			if now, err = side(ctx, src, b); err == nil {
				d := &differ{ctx: ctx, src: src, yield: yield}
				err = d.entry(".", old, now, 0)
			}
		}
		if err != nil && !errors.Is(err, errDone) {
			yield(Change{}, err)
		}
	}
}

// side returns the entry of the top directory of one of the two trees.
func side(ctx context.Context, src Source, root pack.ID) (Entry, error) {
	if root == (pack.ID{}) {
		return Entry{Type: Dir}, nil
	}
	return top(ctx, src, root)
}

type differ struct {
	ctx   context.Context
	src   Source
	yield func(Change, error) bool
}

func (d *differ) entry(path string, old, now Entry, depth int) error {
	if depth > MaxDepth {
		return errDeep
	}
	if !sameFields(old, now) || old.Type == File && old.content != now.content {
		if !d.yield(Change{Path: path, Old: old, New: now}, nil) {
			return errDone
		}
	}
	var a, b ref
	if old.Type == Dir {
		a = old.content
	}
	if now.Type == Dir {
		b = now.content
	}
	return eachDifference(d.ctx, d.src, a, b, func(old, now Entry) error {
		return d.entry(join(path, cmpName(old, now)), old, now, depth+1)
	})
}

// cmpName returns the common name of two entries; one of the two may be the zero Entry, which has no name.
func cmpName(old, now Entry) string {
	if old.Type != 0 {
		return old.Name
	}
	return now.Name
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// sameFields reports whether two entries are equal, their content aside.
func sameFields(a, b Entry) bool {
	return a.Type == b.Type && a.Mode == b.Mode && a.Owner == b.Owner && a.Mtime == b.Mtime && a.Size == b.Size &&
		a.Target == b.Target && a.Link == b.Link && slices.Equal(a.Xattrs, b.Xattrs)
}

// eachDifference calls found for each entry that differs between two lists. It does not read the nodes that both lists
// have.
func eachDifference(ctx context.Context, src Source, a, b ref, found func(old, now Entry) error) error {
	if a == b {
		return nil
	}
	p := pair{a: newCursor(src, entriesNode, a, 0), b: newCursor(src, entriesNode, b, 0)}
	for {
		if err := p.fill(ctx); err != nil {
			return err
		}
		old, now := p.old, p.now
		switch {
		case !p.hasOld && !p.hasNow:
			return nil
		case !p.hasNow || p.hasOld && old.Name < now.Name:
			now, p.hasOld = Entry{}, false
		case !p.hasOld || now.Name < old.Name:
			old, p.hasNow = Entry{}, false
		default:
			p.hasOld, p.hasNow = false, false
			if sameFields(old, now) && old.content == now.content {
				continue
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := found(old, now); err != nil {
			return err
		}
	}
}

// pair reads two lists side by side.
type pair struct {
	a, b           *cursor
	old, now       Entry
	hasOld, hasNow bool
}

// fill reads the next entry of each list from which none is waiting. It skips nodes that both lists have.
func (p *pair) fill(ctx context.Context) error {
	for !p.hasOld && !p.hasNow {
		a, la, oka := p.a.node()
		b, lb, okb := p.b.node()
		if !oka || !okb {
			break
		}
		if a == b && la == lb {
			p.a.skip()
			p.b.skip()
			continue
		}
		if la >= lb {
			if err := p.a.open(ctx); err != nil {
				return err
			}
		}
		if lb >= la {
			if err := p.b.open(ctx); err != nil {
				return err
			}
		}
	}
	if !p.hasOld {
		it, ok, err := p.a.next(ctx)
		if err != nil {
			return err
		}
		p.old, p.hasOld = it.entry, ok
	}
	if !p.hasNow {
		it, ok, err := p.b.next(ctx)
		if err != nil {
			return err
		}
		p.now, p.hasNow = it.entry, ok
	}
	return nil
}
