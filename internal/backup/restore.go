package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// Restoring configures Restore.
type Restoring struct {
	// Dir is the data directory to be made. It must not exist, or be empty.
	Dir string
	// Passphrase returns the passphrase of the keys of the archive; nil leaves them out.
	Passphrase func() (string, error)
	// Check examines the restored directory before it is renamed to Dir. If Check returns an error, nothing is restored.
	Check func(dir string, s Summary) error
}

// Restore makes a data directory from an archive, whole or not at all. The error is conflict if the directory
// has anything in it.
func Restore(ctx context.Context, r io.Reader, how Restoring) (s Summary, err error) {
	if err := empty(how.Dir); err != nil {
		return s, err
	}
	parent := filepath.Dir(how.Dir)
	if err := durable.MkdirAll(parent, 0o700); err != nil {
		return s, disk(err)
	}
	stage := stageOf(how.Dir)
	held, err := hold(stage)
	if err != nil {
		return s, err
	}
	defer func() {
		// Once the directory was renamed from the stage to its final name, another restore may have made a new stage at this
		// path.
		if still, serr := isAt(held, stage); still {
			err = errors.Join(err, os.RemoveAll(stage))
		} else {
			err = errors.Join(err, serr)
		}
		err = errors.Join(err, held.Close())
	}()
	// A restore that was killed may have left files in the stage.
	if err := clearDir(stage); err != nil {
		return s, disk(err)
	}
	if s, err = unpack(ctx, r, stage, how.Passphrase); err != nil {
		return s, err
	}
	if err := how.Check(stage, s); err != nil {
		return s, err
	}
	if err := rooted.Sync(stage); err != nil {
		return s, disk(err)
	}
	if err := durable.Publish(stage, how.Dir); err != nil {
		return s, disk(err)
	}
	return s, nil
}

// stageOf returns the path of the stage, the directory in which a restore builds a data directory before it renames it.
func stageOf(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"-restore")
}

// hold makes the stage of a restore, if it is not there, and locks it until the result is closed. The lock of a process
// ends with the process. The error is conflict while another process holds it.
func hold(stage string) (*os.File, error) {
	for {
		if err := os.Mkdir(stage, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, disk(err)
		}
		f, err := os.OpenFile(stage, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another restore, which has just ended, removed or renamed the stage
		}
		if err != nil {
			return nil, disk(err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = holdfast.Errorf(holdfast.KindConflict, "restore", "another restore works in the directory %s", holdfast.Quote(stage)).WithHint("wait until the other restore has ended")
			return nil, errors.Join(err, f.Close())
		}
		same := false
		if err == nil {
			same, err = isAt(f, stage)
		}
		if err == nil && same {
			return f, nil
		}
		if cerr := f.Close(); err != nil || cerr != nil {
			return nil, disk(errors.Join(err, cerr))
		}
	}
}

// isAt reports whether an open directory is still at a path: another restore may have removed or renamed it before it
// was locked. The directory must be the user's own.
func isAt(f *os.File, path string) (bool, error) {
	have, err := f.Stat()
	if err != nil {
		return false, err
	}
	if st, ok := have.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false, &fs.PathError{Op: "restore", Path: path, Err: fs.ErrPermission}
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(have, now), err
}

// clearDir removes what is in a directory.
func clearDir(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// empty returns conflict unless a directory has nothing in it, or does not exist.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return disk(err)
	}
	return holdfast.Errorf(holdfast.KindConflict, "restore", "the data directory %s is not empty: %s is in it", holdfast.Quote(dir), holdfast.Quote(list[0].Name())).
		WithHint("restore into a new data directory with --data DIR, or move the old one away: mv %s %s.old", dir, dir)
}

func unpack(ctx context.Context, r io.Reader, stage string, passphrase func() (string, error)) (Summary, error) {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return Summary{}, disk(err)
	}
	defer root.Close()
	file := func(f File, mode int64, from io.Reader) error {
		if leftOut(f.Name) {
			return nil // older releases archived plugin directories, but not all of their files
		}
		name := filepath.FromSlash(f.Name)
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return disk(err)
		}
		return put(root, name, fs.FileMode(mode)&0o700, from)
	}
	keys := map[string][]byte{}
	s, err := Read(ctx, r, file, func(sealed []byte) error {
		if passphrase == nil {
			return nil
		}
		text, err := passphrase()
		if err != nil {
			return err
		}
		keys, err = OpenKeys(sealed, text)
		return err
	})
	if err != nil {
		return s, err
	}
	// These keys are written last: so the stage of a restore that is killed before this point has none of them in it.
	for name, content := range keys {
		if !slices.Contains(KeyNames, name) {
			return s, damaged("it has a key %s, which no backup has", holdfast.Quote(name))
		}
		if err := put(root, name, 0o600, bytes.NewReader(content)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// put writes a new file with the content that from returns. It fails if the file exists.
func put(root *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return disk(err)
	}
	// If the archive cannot be read, Copy returns its error as it is; onDisk marks errors of writing the file.
	_, err = io.Copy(onDisk{f}, from)
	if cerr := f.Chmod(mode); err == nil && cerr != nil {
		err = disk(cerr)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = disk(cerr)
	}
	return err
}

type onDisk struct{ f *os.File }

func (w onDisk) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	if err != nil {
		err = disk(err)
	}
	return n, err
}
