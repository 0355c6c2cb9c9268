package edit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Prefix begins the names of staged entries, which are complete and wait for their own name, and of entries that wait
// to be removed.
const Prefix = ".holdfast-rewind-"

// Tree is a directory that belongs to somebody else. Is returns an error if an opened directory is not this one; a nil
// Is accepts any directory.
type Tree struct {
	Dir string
	Is  func(rooted.Entry) error
}

// Open opens the directory. If another directory, or something that is not a directory, is in its place, it returns the
// error of Is.
func (t Tree) Open() (rooted.Dir, error) {
	is := t.Is
	if is == nil {
		is = func(rooted.Entry) error { return nil }
	}
	top, err := rooted.OpenTree(t.Dir)
	if err != nil {
		if other := is(rooted.Entry{}); other != nil && holdfast.IsKind(err, holdfast.KindConflict) {
			err = other
		}
		return top, err
	}
	now, err := top.Stat()
	if err == nil {
		err = is(now)
	}
	if err != nil {
		top.Close()
	}
	return top, err
}

// Editor carries out plans in a directory. One goroutine uses it.
type Editor struct {
	Tree
	// UID and GID become the owner of files that are written. Now becomes their modification time, so that build tools see
	// the change.
	UID, GID int
	Now      time.Time
	// Tag is part of the names of staged files, and differs for each rewind.
	Tag string
	// At is called at named points, for tests only: after each change, and before each change that may hit an entry of
	// somebody else.
	At func(point string)
	// plain, for tests only, pretends that the file system can only rename: no exchange, and no rename that refuses an
	// existing name.
	plain bool
}

// one is one step of a plan, with the open directory that contains its path, and the name of the path in this
// directory.
type one struct {
	Step
	e    *Editor
	in   rooted.Dir
	name string
}

// each calls do for each step, in the given order or backward. For a step whose directory does not exist, or cannot be
// opened because it is something else or denied, it calls absent instead.
func (e *Editor) each(ctx context.Context, steps []Step, backward bool, do func(one) error, absent func(Step) error) error {
	top, err := e.Open()
	if err != nil {
		return err
	}
	defer top.Close()
	for i := range steps {
		if backward {
			i = len(steps) - 1 - i
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		in, err := below(top, path.Dir(steps[i].Path))
		switch {
		case err == nil:
			err = do(one{steps[i], e, in, path.Base(steps[i].Path)})
			in.Close()
		case elsewhere(err):
			err = absent(steps[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below opens a directory of the tree.
func below(top rooted.Dir, dir string) (rooted.Dir, error) {
	if dir == "." {
		dir = ""
	}
	return top.Below(dir)
}

// elsewhere reports whether an error says that a path leads to nothing, to something else than it should, or that it is
// denied.
func elsewhere(err error) bool {
	return holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindConflict) || holdfast.IsKind(err, holdfast.KindDenied)
}

// is reports whether the entry want is at the step's path now; the zero Entry means that nothing is there. If dated is
// true, a file that has the size, the mode and the modification time of want counts as want without being read.
func (o one) is(ctx context.Context, want Entry, dated bool) (bool, error) {
	now, err := o.in.Lstat(o.name)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return want.Type == Nothing, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case want.Type == Dir:
		return now.Mode.IsDir(), nil
	case want.Type == Symlink && now.Mode&fs.ModeSymlink != 0:
		target, err := o.in.Readlink(o.name)
		return target == want.Target, err
	case want.Type != File || !now.Mode.IsRegular() || now.Size != want.Size || uint32(now.Mode.Perm()) != want.Mode:
		return false, nil
	case dated && now.Mtime.UnixNano() == want.Mtime:
		return true, nil
	}
	return o.has(ctx, want)
}

// has reports whether the file at the step's path has the content of want, up to the size of want.
func (o one) has(ctx context.Context, want Entry) (bool, error) {
	h, _, err := rooted.OpenFile(o.in, o.name)
	if err != nil {
		if elsewhere(err) {
			return false, nil
		}
		return false, err
	}
	defer h.Close()
	stored, err := want.Open(ctx)
	if err != nil {
		return false, err
	}
	there := io.NewSectionReader(h, 0, want.Size)
	var a, b [64 << 10]byte
	for left := want.Size; left > 0; {
		n := int(min(left, int64(len(a))))
		if _, err := io.ReadFull(stored, a[:n]); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(there, b[:n]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
		left -= int64(n)
	}
	return true, nil
}

// Check returns the paths of a plan at which something else is than the plan's old entry. It changes nothing.
func (e *Editor) Check(ctx context.Context, p Plan) (conflicts []string, err error) {
	known := map[string]bool{}
	for _, s := range p.Steps {
		known[s.Path] = true
	}
	absent := func(s Step) error {
		if s.Old.Type != Nothing {
			conflicts = append(conflicts, s.Path)
		}
		return nil
	}
	err = e.each(ctx, p.Steps, false, func(o one) error {
		ok, err := o.is(ctx, o.Old, true)
		if ok && o.unmakes() && o.New.Type != Nothing {
			ok, err = o.emptied(known)
		}
		if err == nil && !ok {
			conflicts = append(conflicts, o.Path)
		}
		return err
	}, absent)
	return conflicts, err
}

// emptied reports whether the plan has a step for each entry of the directory at the step's path.
func (o one) emptied(known map[string]bool) (bool, error) {
	names, err := rooted.Names(o.in, o.name, len(known))
	if err != nil {
		if elsewhere(err) || holdfast.IsKind(err, holdfast.KindTooLarge) {
			return false, nil
		}
		return false, err
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !known[o.Path+"/"+name] }), nil
}

// Staged returns the paths that Stage and Apply use besides the paths of the plan.
func (e *Editor) Staged(p Plan) (paths []string) {
	made := made(p)
	for _, s := range p.Steps {
		paths = append(paths, e.waiting(s, made)...)
	}
	return paths
}

// waiting returns the paths at which entries of a step wait: the new entry before it gets its own name, and an old
// entry before it is removed.
func (e *Editor) waiting(s Step, made map[string]bool) (paths []string) {
	if s.writes() || s.makes() {
		dir, name := e.staged(s.Path, made)
		paths = append(paths, path.Join(dir, name))
	}
	if s.removes() {
		paths = append(paths, path.Join(path.Dir(s.Path), e.aside(s.Path)))
	}
	return paths
}

// made returns the directories that a plan makes.
func made(p Plan) map[string]bool {
	out := map[string]bool{}
	for _, s := range p.Steps {
		if s.makes() {
			out[s.Path] = true
		}
	}
	return out
}

// staged returns the directory and the name that a path's new entry has until it gets its own name: the directory is
// the nearest one above the path that the plan does not make.
func (e *Editor) staged(at string, made map[string]bool) (dir, name string) {
	for dir = path.Dir(at); made[dir]; dir = path.Dir(dir) {
	}
	return dir, e.hidden(at)
}

// aside returns the name that a path's old entry has in the same directory until it is removed.
func (e *Editor) aside(at string) string { return e.hidden(at + "\x00removed") }

func (e *Editor) hidden(of string) string {
	sum := sha256.Sum256([]byte(e.Tag + "\x00" + of))
	return Prefix + hex.EncodeToString(sum[:16])
}

// part ends the name of a file or directory that is not complete. Nobody else uses such names, so the entry can be
// removed at any time.
const part = ".part"

// Stage writes the new files and directories of a plan under other names, and returns when they are durable. After an
// error the caller calls Clean.
func (e *Editor) Stage(ctx context.Context, p Plan) error {
	top, err := e.Open()
	if err != nil {
		return err
	}
	defer top.Close()
	made := made(p)
	for _, s := range p.Steps {
		if !s.writes() && !s.makes() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		dir, name := e.staged(s.Path, made)
		in, err := below(top, dir)
		if err != nil {
			return err
		}
		if err = drop(in, name); err == nil {
			err = e.stage(ctx, in, name, s)
		}
		in.Close()
		if err != nil {
			return err
		}
		e.At("staged")
	}
	return rooted.Sync(e.Dir)
}

// stage writes the new entry of a step, and gives it its staged name when it is complete. The caller makes sure that
// the staged name does not exist.
func (e *Editor) stage(ctx context.Context, in rooted.Dir, name string, s Step) error {
	if err := drop(in, name+part); err != nil {
		return err
	}
	if err := e.write(ctx, in, name+part, s); err != nil {
		return err
	}
	e.At("written")
	err := e.add(in, name+part, in, name)
	if errors.Is(err, errors.ErrUnsupported) {
		err = rooted.Move(in, name+part, in, name)
	}
	return err
}

// write writes the new entry of a step.
func (e *Editor) write(ctx context.Context, in rooted.Dir, name string, s Step) error {
	attr := rooted.Attr{
		Mode: s.New.Mode, UID: e.UID, GID: e.GID, Mtime: e.Now.UnixNano(), Xattrs: s.New.Xattrs,
	}
	switch s.New.Type {
	case Symlink:
		return in.Symlink(s.New.Target, name, attr)
	case Dir:
		sub, err := in.Mkdir(name)
		if err != nil {
			return err
		}
		defer sub.Close()
		return sub.Set(attr, true)
	}
	h, err := in.Create(name)
	if err != nil {
		return err
	}
	defer h.Close()
	content, err := s.New.Open(ctx)
	if err == nil {
		_, err = io.Copy(io.NewOffsetWriter(h, 0), content)
	}
	if err != nil {
		return err
	}
	return h.Set(attr, true)
}

// drop removes a staged entry, a directory only if it is empty.
func drop(in rooted.Dir, name string) error {
	now, err := in.Lstat(name)
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return nil
	case err != nil:
		return err
	case now.Mode.IsDir():
		_, err = rooted.Rmdir(in, name)
		return err
	}
	return rooted.Unlink(in, name)
}

// Clean removes the staged entries at the paths that Staged returned. It leaves names without Prefix and directories
// that are not empty. It may be called only before Apply: after that, an entry of somebody else may have such a name.
func (t Tree) Clean(staged []string) error {
	top, err := t.Open()
	if err != nil {
		return err
	}
	defer top.Close()
	for _, p := range staged {
		if path.Clean("/"+p) != "/"+p || !strings.HasPrefix(path.Base(p), Prefix) {
			continue
		}
		in, derr := below(top, path.Dir(p))
		if derr == nil {
			derr = errors.Join(drop(in, path.Base(p)+part), drop(in, path.Base(p)))
			in.Close()
		}
		if derr != nil && !elsewhere(derr) {
			err = errors.Join(err, derr)
		}
	}
	return err
}
