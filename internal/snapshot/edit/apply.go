package edit

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Others may save a file at any moment, also between a look at it and a rename. So Apply replaces and removes nothing
// that it has not seen under another name first: it exchanges a staged entry with the one at its path, or gives the
// entry at the path another name, and then looks at the entry that it took. If that is not the plan's old entry, Apply
// gives it its name back. After an interruption it decides by what is under the two names. On a file system that can
// only rename, Apply looks first and then renames.

// Apply carries out a staged plan and returns when the changes are durable. It may be repeated after an interruption at
// any point. left are the paths at which something else was than the plan's old or new entry: Apply leaves it there. A
// directory stays if something is in it. If an entry of somebody else could not get its name back, left has the path at
// which it is, too.
func (e *Editor) Apply(ctx context.Context, p Plan) (left []string, err error) {
	top, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer top.Close()
	var gone []Step
	for _, s := range p.Steps {
		if s.removes() || s.unmakes() {
			gone = append(gone, s)
		}
	}
	keep := func(s Step, err error) error {
		if err == nil || elsewhere(err) {
			left = append(left, s.Path)
			return nil
		}
		return err
	}
	err = e.each(ctx, gone, true, func(o one) error {
		ok, err := o.remove(ctx)
		if err != nil || !ok {
			return keep(o.Step, err)
		}
		e.At("removed")
		return nil
	}, func(Step) error { return nil })
	if err != nil {
		return left, err
	}
	made := made(p)
	for _, s := range p.Steps {
		if !s.writes() && !s.makes() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return left, err
		}
		ok, err := e.put(ctx, top, s, made)
		if err != nil || !ok {
			if err = keep(s, err); err != nil {
				return left, err
			}
		}
		e.At("placed")
	}
	kept, err := e.Settle(ctx, p)
	left = append(left, kept...)
	if err != nil {
		return left, err
	}
	slices.Sort(left)
	return slices.Compact(left), rooted.Sync(e.Dir)
}

// before returns the entry that should be at the step's path just before the new entry gets there: nothing, if the
// first pass has removed an entry of another type.
func (o one) before() Entry {
	if o.unmakes() || o.makes() {
		return Entry{}
	}
	return o.Old
}

// fresh returns the step's new entry with the modification time that Stage gives it. With this time the staged entry is
// recognized without being read.
func (o one) fresh() Entry {
	want := o.New
	want.Mtime = o.e.Now.UnixNano()
	return want
}

// under returns the step o for the entry with another name, in another directory.
func (o one) under(in rooted.Dir, name string) one {
	o.in, o.name = in, name
	return o
}

// remove removes the entry that the step replaces by nothing or by an entry of another type; false if something else is
// there now.
func (o one) remove(ctx context.Context) (bool, error) {
	if o.unmakes() {
		now, err := o.in.Lstat(o.name)
		if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return false, err
		}
		if err != nil || !now.Mode.IsDir() {
			return true, nil // if it does not exist, there is nothing to remove; if it is something else now, the second pass handles it
		}
		gone, err := rooted.Rmdir(o.in, o.name)
		return gone || o.New.Type == Nothing, err
	}
	away := o.under(o.in, o.e.aside(o.Path))
	if other, err := o.settle(ctx, away); other || err != nil {
		return false, err
	}
	for _, done := range []Entry{{}, o.New} {
		if ok, err := o.is(ctx, done, false); ok || err != nil {
			return ok, err
		}
	}
	ok, err := o.is(ctx, o.Old, true)
	if err != nil || !ok {
		return false, err
	}
	o.e.At("removing")
	err = o.e.add(o.in, o.name, away.in, away.name)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return true, rooted.Unlink(o.in, o.name)
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	o.e.At("aside")
	other, err := o.settle(ctx, away)
	return !other && err == nil, err
}

// put gives the staged entry of a step its own name; false if something else is at the path than the plan's old or new
// entry.
func (e *Editor) put(ctx context.Context, top rooted.Dir, s Step, made map[string]bool) (bool, error) {
	in, err := below(top, path.Dir(s.Path))
	if err != nil {
		return false, err
	}
	defer in.Close()
	o := one{s, e, in, path.Base(s.Path)}
	dir, name := e.staged(s.Path, made)
	from, err := below(top, dir)
	if err != nil {
		return false, err
	}
	defer from.Close()
	staged := o.under(from, name)
	whole, err := staged.is(ctx, o.fresh(), true)
	if err != nil {
		return false, err
	}
	if !whole {
		if other, err := o.settle(ctx, staged); other || err != nil {
			return false, err
		}
	}
	ready, err := o.is(ctx, o.before(), true)
	if err != nil {
		return false, err
	}
	if !ready {
		return o.is(ctx, s.New, false)
	}
	if !whole { // a power cut destroyed the staged entry: write it again
		if err := e.stage(ctx, from, name, s); err != nil {
			return false, err
		}
	}
	e.At("placing")
	return o.place(ctx, staged)
}

// place does the work of put, once the staged entry is known to be complete and the plan's old entry was found at the
// path.
func (o one) place(ctx context.Context, staged one) (bool, error) {
	var err error
	if o.before().Type == Nothing {
		err = o.e.add(staged.in, staged.name, o.in, o.name)
	} else {
		err = o.e.exchange(staged.in, staged.name, o.in, o.name)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return true, rooted.Move(staged.in, staged.name, o.in, o.name)
	case errors.Is(err, fs.ErrExist):
		return o.is(ctx, o.New, false)
	case err != nil || o.before().Type == Nothing:
		return err == nil, err
	}
	o.e.At("exchanged")
	other, err := o.settle(ctx, staged)
	return !other && err == nil, err
}

// settle removes the entry that waits under another name of the step, if it is the plan's old or new entry. Any other
// entry is somebody else's: it gets the step's path, if nothing or the new entry is there; otherwise it keeps the name
// under which it waits. other reports that the entry was somebody else's.
func (o one) settle(ctx context.Context, waits one) (other bool, err error) {
	if _, err := waits.in.Lstat(waits.name); holdfast.IsKind(err, holdfast.KindNotFound) {
		return false, nil
	}
	ours, err := waits.planned(ctx)
	switch {
	case err != nil:
		return false, err
	case ours:
		return false, drop(waits.in, waits.name)
	}
	return true, o.giveBack(ctx, waits)
}

// planned reports whether an entry is the plan's old or new one.
func (o one) planned(ctx context.Context) (bool, error) {
	for _, want := range []Entry{o.fresh(), o.Old} {
		if ok, err := o.is(ctx, want, true); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// giveBack gives somebody else's entry the step's path, if nothing or the plan's new entry is there.
func (o one) giveBack(ctx context.Context, waits one) error {
	err := o.e.add(waits.in, waits.name, o.in, o.name)
	if err == nil {
		o.e.At("returned")
	}
	if !errors.Is(err, fs.ErrExist) || !o.writes() {
		return known(err)
	}
	if ours, err := o.is(ctx, o.fresh(), true); err != nil || !ours {
		return err
	}
	o.e.At("returning")
	if err := o.e.exchange(waits.in, waits.name, o.in, o.name); err != nil {
		return known(err)
	}
	o.e.At("returned")
	ours, err := waits.planned(ctx)
	switch {
	case err != nil:
		return err
	case ours:
		return drop(waits.in, waits.name)
	}
	// Somebody saved another file at the path just before the exchange, and it waits now. Exchange again: this newer file
	// gets the path.
	return known(o.e.exchange(waits.in, waits.name, o.in, o.name))
}

// known returns nil for an error after which an entry stays where it is: it could not be moved. It returns any other
// error.
func known(err error) error {
	if errors.Is(err, errors.ErrUnsupported) || elsewhere(err) {
		return nil
	}
	return err
}

// Settle ends a plan that Apply has begun, without carrying out more of it: it removes the plan's own entries that
// still wait under other names, and gives entries of somebody else their names back. left are the paths of the latter,
// and the paths at which they still wait because their names are taken. Settle may be repeated.
func (e *Editor) Settle(ctx context.Context, p Plan) (left []string, err error) {
	top, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer top.Close()
	made := made(p)
	for _, s := range p.Steps {
		for _, at := range e.waiting(s, made) {
			from, err := below(top, path.Dir(at))
			if elsewhere(err) {
				continue
			}
			if err != nil {
				return left, err
			}
			other, waits, err := e.end(ctx, top, one{s, e, from, path.Base(at)})
			from.Close()
			if err != nil {
				return left, err
			}
			if other || waits {
				left = append(left, s.Path)
			}
			if waits {
				left = append(left, at)
			}
		}
	}
	return left, nil
}

// end does what Settle does for one path at which an entry may wait. waits reports that an entry waits there
// afterwards, too.
func (e *Editor) end(ctx context.Context, top rooted.Dir, at one) (other, waits bool, err error) {
	if err := drop(at.in, at.name+part); err != nil {
		return false, false, err
	}
	in, err := below(top, path.Dir(at.Path))
	switch {
	case err == nil:
		defer in.Close()
		other, err = at.under(in, path.Base(at.Path)).settle(ctx, at)
	case elsewhere(err): // the directory of its path is gone, replaced or closed to the server
		var ours bool
		if ours, err = at.planned(ctx); ours && err == nil {
			err = drop(at.in, at.name)
		}
	}
	if err != nil {
		return false, false, err
	}
	_, err = at.in.Lstat(at.name)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return other, false, nil
	}
	return other, true, err
}

// add is rooted.Add, and exchange is rooted.Exchange. For a test with plain set both return errors.ErrUnsupported.
func (e *Editor) add(from rooted.Dir, old string, to rooted.Dir, name string) error {
	if e.plain {
		return errors.ErrUnsupported
	}
	return rooted.Add(from, old, to, name)
}

func (e *Editor) exchange(from rooted.Dir, old string, to rooted.Dir, name string) error {
	if e.plain {
		return errors.ErrUnsupported
	}
	return rooted.Exchange(from, old, to, name)
}
