package rooted

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// File is one file to seed. Path is relative, slash-separated and clean; Mode holds the
// permission bits.
type File struct {
	Path    string
	Mode    uint32
	Content []byte
}

// Seed copies files into dir, makes dir if it is missing, and returns when the files are durable. It leaves existing
// files and directories as they are, except that directories which an interrupted Seed has made get their owner and
// mode. New files and directories belong to uid and gid. A file appears complete or not at all, so an interrupted Seed
// can be repeated with the same effect. While Seed runs, a directory dir.seed exists next to dir; both must be in a
// directory that only the server can write. Seed returns invalid for a path that is not clean. kept are the paths of
// the files that it did not copy, because dir has something else there, or because the path leads out of dir or through
// something that is not a directory.
func Seed(dir string, files []File, uid, gid int) (kept []string, err error) {
	const op = "workspace.seed"
	if dir, err = absolute(op, dir); err != nil {
		return nil, err
	}
	for _, f := range files {
		if !fs.ValidPath(f.Path) || f.Path == "." || strings.IndexByte(f.Path, 0) >= 0 {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the path %s is not a clean relative path of a file", holdfast.Quote(f.Path))
		}
	}
	s := &seeder{uid: uid, gid: gid, made: map[string]bool{}}
	if err := s.open(dir); err != nil {
		return nil, fail(op, err)
	}
	defer s.close()
	for i, f := range files {
		switch err := s.file(i, f); {
		case errors.Is(err, errOccupied):
			kept = append(kept, f.Path)
		case err != nil:
			return nil, fail(op, err)
		}
	}
	for name := range s.made {
		// The agent may have put something else in the place of the directory.
		if err := s.sync(name); err != nil && !errors.Is(err, errOccupied) {
			return nil, fail(op, err)
		}
	}
	return kept, fail(op, s.finish(dir))
}

// errOccupied is the error for a file that Seed cannot write, because something else is at its path or in the place of
// a directory above it.
var errOccupied = errors.New("the path of the file in the workspace is taken by something else")

// seeder is the state of one Seed.
type seeder struct {
	uid, gid int
	root     *os.Root
	stage    *os.Root
	// made holds the directories that got new entries, by their path below root.
	made map[string]bool
}

// open opens the tree, which it makes if it is missing, and makes an empty directory next to the tree, the stage. Files
// are written in the stage, where the agent cannot reach them.
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
		return holdfast.Errorf(holdfast.KindConflict, "workspace.seed", "the workspace %s is not a directory", holdfast.Quote(dir))
	}
	stage := dir + ".seed"
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	if err := os.Mkdir(stage, 0o700); err != nil {
		return err
	}
	if s.root, err = openRoot(dir); err != nil {
		return err
	}
	if s.stage, err = openRoot(stage); err != nil {
		return errors.Join(err, s.root.Close())
	}
	if err := s.own(".", created); err != nil {
		s.close()
		return err
	}
	return nil
}

func (s *seeder) close() {
	// Both are descriptors of directories: no data is lost if closing fails.
	_ = s.root.Close()
	_ = s.stage.Close()
}

func (s *seeder) finish(dir string) error {
	if err := os.RemoveAll(dir + ".seed"); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// file writes a file completely in the stage, and then makes a hard link to it at its path in the tree.
func (s *seeder) file(n int, f File) error {
	if _, err := s.root.Lstat(f.Path); err == nil {
		return s.equal(f)
	}
	if err := s.parents(path.Dir(f.Path)); err != nil {
		return err
	}
	name := strconv.Itoa(n)
	if err := s.complete(name, f); err != nil {
		return err
	}
	// Open the directory within the root, and make the link in the opened directory: if somebody replaces the directory by
	// a symlink meanwhile, the link is still made inside the tree.
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

// equal returns errOccupied unless the tree has a file with the same content.
func (s *seeder) equal(f File) error {
	in, err := s.root.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return errOccupied
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errOccupied
	}
	has, err := io.ReadAll(io.LimitReader(in, int64(len(f.Content))+1))
	if err != nil || !bytes.Equal(has, f.Content) {
		return errOccupied
	}
	return nil
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

// parents makes the missing directories of a path.
func (s *seeder) parents(dir string) error {
	if dir == "." {
		return nil
	}
	if err := s.parents(path.Dir(dir)); err != nil {
		return err
	}
	switch err := s.root.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		if s.uid == os.Geteuid() {
			return nil // the directory may be the agent's own, which has the same uid
		}
		return s.own(dir, false)
	case err != nil:
		return through(dir, err)
	}
	s.made[path.Dir(dir)] = true
	return s.own(dir, true)
}

// own sets the owner and the mode of a directory, through a descriptor, if it is new or if a Seed that was interrupted made
// it. The owner comes last: until then the directory is the server's, which tells the next Seed that it is unfinished.
func (s *seeder) own(dir string, created bool) error {
	d, err := s.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil && !created {
		return nil // the agent has put something else there, so the directory's owner and mode are not set
	}
	if err != nil {
		return through(dir, err)
	}
	defer d.Close()
	if !created {
		if unfinished, err := s.unfinished(d); err != nil || !unfinished {
			return err
		}
	}
	s.made[dir] = true
	if err := d.Chmod(0o755); err != nil {
		return err
	}
	return s.chown(d)
}

// unfinished reports whether a directory looks like one that an interrupted Seed made, but gave neither owner nor mode:
// it is empty, and the server is its owner. An agent with another uid than the server's cannot make such a directory.
// If the agent has the server's uid, only a directory of the mode 0700 counts as unfinished.
func (s *seeder) unfinished(d *os.File) (bool, error) {
	info, err := d.Stat()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || s.uid == os.Geteuid() && info.Mode().Perm() != 0o700 {
		return false, nil
	}
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
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
		return nil // the agent removed the directory
	}
	if err != nil {
		return through(name, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// through returns the error of a failed step for a path: errOccupied if something in the tree is in the way, else an
// error that names the path.
func through(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	// If a path leads out of the root, os.Root returns an error that does not come from a system call.
	var errno syscall.Errno
	there := []syscall.Errno{syscall.ENOTDIR, syscall.ELOOP, syscall.ENOENT, syscall.EACCES}
	if !errors.As(err, &errno) || slices.Contains(there, errno) {
		return errOccupied
	}
	kind := holdfast.KindConflict
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = holdfast.KindTooLarge
	}
	return holdfast.Errorf(kind, "workspace.seed", "cannot write the file %s into the workspace: %w", holdfast.Quote(name), err)
}
