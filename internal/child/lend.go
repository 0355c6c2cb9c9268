package child

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Lend puts the agent CLIs in the directory runtimes into a server's data directory: as hard links if
// the file system allows them, else as copies.
func Lend(runtimes, data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	to := filepath.Join(data, "runtimes")
	return filepath.WalkDir(runtimes, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(runtimes, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(to, target)
		case os.Link(path, target) == nil:
			return nil
		default:
			return copyFile(path, target)
		}
	})
}

// copyFile copies a file to a name that does not exist yet.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fi.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
