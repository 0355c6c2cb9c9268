package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// The functions in this file run inside Options.Do. They fill the staging directory.

// parent opens the directory in the staging directory that contains an entry, and returns the entry's
// last name. It makes directories that the archive does not list. It refuses a path through a symlink.
func (u *unpacker) parent(name string) (*os.Root, string, error) {
	above, base := path.Split(name)
	above = strings.TrimSuffix(above, "/")
	if above == "" {
		return u.top, base, nil
	}
	if u.in != nil && u.of == above {
		return u.in, base, nil
	}
	at := u.top
	for i, part := range strings.Split(above, "/") {
		next, err := u.down(at, part)
		if i > 0 {
			_ = at.Close()
		}
		if err != nil {
			return nil, "", u.fail(name, err)
		}
		at = next
	}
	if u.in != nil {
		_ = u.in.Close()
	}
	u.in, u.of = at, above
	return at, base, nil
}

func (u *unpacker) down(at *os.Root, name string) (*os.Root, error) {
	info, err := at.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = at.Mkdir(name, 0o755); err == nil {
			return at.OpenRoot(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, refused("%s is a file in the archive, but other entries are below it as in a directory", holdfast.Quote(name))
	}
	return at.OpenRoot(name)
}

// fail returns an error about an entry, with the entry's name.
func (u *unpacker) fail(name string, err error) error {
	if u.to.File {
		name = u.to.Name
	}
	return fail("tree.unpack", name, err)
}

// twice returns the error for an entry that cannot be made. If err says that its name exists, the error says that the
// archive contains the name twice; otherwise it is the same as that of fail.
func (u *unpacker) twice(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return refused("the archive contains the name %s twice", holdfast.Quote(name))
	}
	return u.fail(name, err)
}

func (u *unpacker) mkdir(name string, mode fs.FileMode) error {
	if name != "." {
		in, base, err := u.parent(name)
		if err != nil {
			return err
		}
		err = in.Mkdir(base, 0o755)
		if info, lerr := in.Lstat(base); errors.Is(err, fs.ErrExist) && lerr == nil && info.IsDir() {
			err = nil
		}
		if err != nil {
			return u.twice(name, err)
		}
	}
	if mode&0o700 != 0o700 {
		u.locked = append(u.locked, dirMode{name, mode})
		if u.lockedBytes += len(name); u.lockedBytes > maxNames {
			return holdfast.Errorf(holdfast.KindTooLarge, "tree.unpack", "the paths of the archive's directories that their owner may not read, write or enter have more than %d MiB", maxNames>>20)
		}
		return nil
	}
	if mode != 0o755 {
		return u.fail(name, chmodDir(u.top, name, mode))
	}
	return nil
}

// chmodDir changes the mode of a directory. If name is not a directory, for example a symlink, it does nothing.
func chmodDir(top *os.Root, name string, mode fs.FileMode) error {
	info, err := top.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	f, err := top.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chmod(mode)
}

func (u *unpacker) create(name string) error {
	in, base, err := u.parent(name)
	if err != nil {
		return err
	}
	u.file, err = in.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return u.twice(name, err)
}

func (u *unpacker) write(name string, data []byte) error {
	_, err := u.file.Write(data)
	return u.fail(name, err)
}

func (u *unpacker) finish(name string, mode fs.FileMode, mtime time.Time) error {
	err := u.file.Chmod(mode)
	err = errors.Join(err, u.file.Close())
	u.file = nil
	if err == nil && !mtime.IsZero() && mtime.Unix() > 0 {
		in, base, perr := u.parent(name)
		if err = perr; err == nil {
			err = in.Chtimes(base, time.Time{}, mtime)
		}
	}
	return u.fail(name, err)
}

func (u *unpacker) symlink(name, target string) error {
	in, base, err := u.parent(name)
	if err != nil {
		return err
	}
	return u.twice(name, in.Symlink(target, base))
}

// link makes a hard link to a file that precedes it in the archive.
func (u *unpacker) link(name, target string) error {
	in, base, err := u.parent(target)
	if err != nil {
		return err
	}
	info, err := in.Lstat(base)
	if err != nil || !info.Mode().IsRegular() {
		return refused("%s is a hard link to %s, which is not an earlier file of the archive", holdfast.Quote(name), holdfast.Quote(target))
	}
	if _, _, err := u.parent(name); err != nil {
		return err
	}
	return u.twice(name, u.top.Link(target, name))
}
