package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// File is one file to seed. Path is relative, slash-separated and clean; Mode
// is permission bits.
type File struct {
	Path    string
	Mode    uint32
	Content []byte
}

// Seed copies files into dir, which is made when it is missing, and returns when
// they are durable. What exists stays as it is, whatever it is. New files and
// directories belong to uid and gid. A file appears whole or not at all, so a
// Seed that was cut off is repeated with the same effect. Next to dir a
// directory dir.seed comes and goes; both must be in a directory that only the
// server can write. A path that is not clean is invalid; one that leads through
// something that is no directory, or out of dir, is conflict.
func Seed(dir string, files []File, uid, gid int) error {
	const op = "workspace.seed"
	dir, err := absolute(op, dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !fs.ValidPath(f.Path) || f.Path == "." || strings.IndexByte(f.Path, 0) >= 0 {
			return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a clean relative path", holdfast.Quote(f.Path))
		}
	}
	s := &seeder{uid: uid, gid: gid, made: map[string]bool{}}
	if err := s.open(dir); err != nil {
		return fail(op, err)
	}
	defer s.close()
	for i, f := range files {
		if err := s.file(i, f); err != nil {
			return fail(op, err)
		}
	}
	for name := range s.made {
		if err := s.sync(name); err != nil {
			return fail(op, err)
		}
	}
	return fail(op, s.finish(dir))
}

// seeder is one Seed under way.
type seeder struct {
	uid, gid int
	root     *os.Root
	stage    *os.Root
	// made are the directories that got new entries, by path below root.
	made map[string]bool
}

// open makes and opens the tree and an empty stage beside it, where files are
// completed out of the agent's reach.
func (s *seeder) open(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	created := err == nil
	if info, err := os.Lstat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return holdfast.Errorf(holdfast.KindConflict, "workspace.seed", "%s is not a directory", holdfast.Quote(dir))
	}
	stage := dir + ".seed"
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	if err := os.Mkdir(stage, 0o700); err != nil {
		return err
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	if s.stage, err = os.OpenRoot(stage); err != nil {
		return errors.Join(err, s.root.Close())
	}
	if created {
		if err := s.own("."); err != nil {
			s.close()
			return err
		}
	}
	return nil
}

func (s *seeder) close() {
	// Only descriptors of directories: nothing is lost when closing fails.
	_ = s.root.Close()
	_ = s.stage.Close()
}

func (s *seeder) finish(dir string) error {
	if err := os.RemoveAll(dir + ".seed"); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// file completes a file on the stage and links it to its place.
func (s *seeder) file(n int, f File) error {
	if _, err := s.root.Lstat(f.Path); err == nil {
		return nil
	}
	if err := s.parents(path.Dir(f.Path)); err != nil {
		return err
	}
	name := strconv.Itoa(n)
	if err := s.complete(name, f); err != nil {
		return err
	}
	// The directory is opened inside the root and the link made in what was
	// opened: a directory that is swapped for a symlink meanwhile changes nothing.
	dir, err := s.root.OpenFile(path.Dir(f.Path), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return through(f.Path, err)
	}
	defer dir.Close()
	from, err := s.stage.Open(".")
	if err != nil {
		return err
	}
	defer from.Close()
	err = unix.Linkat(int(from.Fd()), name, int(dir.Fd()), path.Base(f.Path), 0)
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return through(f.Path, err)
	}
	s.made[path.Dir(f.Path)] = true
	return s.stage.Remove(name)
}

func (s *seeder) complete(name string, f File) error {
	out, err := s.stage.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return durable.Write(out, func(out *os.File) error {
		if _, err := out.Write(f.Content); err != nil {
			return err
		}
		return errors.Join(s.chown(out), out.Chmod(fs.FileMode(f.Mode).Perm()))
	})
}

// parents makes the directories of a path that are missing.
func (s *seeder) parents(dir string) error {
	if dir == "." {
		return nil
	}
	if err := s.parents(path.Dir(dir)); err != nil {
		return err
	}
	switch err := s.root.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return through(dir, err)
	}
	s.made[path.Dir(dir)], s.made[dir] = true, true
	return s.own(dir)
}

// own gives a directory that was made its owner and mode, through a descriptor.
func (s *seeder) own(dir string) error {
	d, err := s.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return through(dir, err)
	}
	defer d.Close()
	if err := s.chown(d); err != nil {
		return err
	}
	return d.Chmod(0o755)
}

func (s *seeder) chown(f *os.File) error {
	if s.uid == os.Geteuid() && s.gid == os.Getegid() {
		return nil
	}
	return f.Chown(s.uid, s.gid)
}

func (s *seeder) sync(name string) error {
	d, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the agent removed it
	}
	if err != nil {
		return through(name, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// through explains why a path cannot be reached inside the tree.
func through(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	kind := holdfast.KindConflict
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = holdfast.KindTooLarge
	}
	return holdfast.Errorf(kind, "workspace.seed", "%s: %w", holdfast.Quote(name), err)
}
