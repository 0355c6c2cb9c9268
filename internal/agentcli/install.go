package agentcli

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// Progress reports how many bytes of a package have been downloaded. Total is -1 if the registry
// does not report the size.
type Progress struct {
	Name, Package string
	Got, Total    int64
}

// fetching is the name prefix of directories for unfinished installations. What a killed
// installation left is removed by the next one.
const fetching = ".fetch-"

// Install installs the pinned version of a CLI, with the CLIs that it needs, and makes it the one
// that new starts use. It does not download again what is installed already. Errors: not_found
// for a name without a pin; denied if a download is not the pinned package; unavailable if the registry
// cannot be reached, the directory cannot be written, or the CLI does not exist for the platform.
func (s *Store) Install(ctx context.Context, name string, tell func(Progress)) (Installed, error) {
	all, err := s.pins()
	if err != nil {
		return Installed{}, err
	}
	if tell == nil {
		tell = func(Progress) {}
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return Installed{}, unavailable(err)
	}
	unlock, err := s.lock()
	if err != nil {
		return Installed{}, unavailable(err)
	}
	defer unlock()
	left, err := fs.Glob(os.DirFS(s.cfg.Dir), fetching+"*")
	if err != nil {
		return Installed{}, unavailable(err)
	}
	for _, dir := range left {
		if err := os.RemoveAll(filepath.Join(s.cfg.Dir, dir)); err != nil {
			return Installed{}, unavailable(err)
		}
	}
	return s.install(ctx, name, all, tell)
}

func (s *Store) install(ctx context.Context, name string, all map[string]pin, tell func(Progress)) (Installed, error) {
	in, p, err := resolved(name, s.cfg.Platform, all)
	if err != nil {
		return Installed{}, err
	}
	for _, need := range p.Needs {
		if _, err := s.install(ctx, need, all, tell); err != nil {
			return Installed{}, err
		}
	}
	if there, err := s.current(name); err == nil && there.Tree == in.Tree {
		return there, nil
	}
	if _, err := os.Stat(filepath.Join(s.cfg.Dir, in.Tree, manifest)); err != nil {
		if err := s.make(ctx, in, p, tell); err != nil {
			return Installed{}, err
		}
	}
	return in, s.point(in)
}

// make downloads and unpacks a tree into a temporary directory, and renames it once it is
// complete and on disk.
func (s *Store) make(ctx context.Context, in Installed, p pin, tell func(Progress)) error {
	tmp, err := os.MkdirTemp(s.cfg.Dir, fetching)
	if err != nil {
		return unavailable(err)
	}
	defer os.RemoveAll(tmp)
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return unavailable(err)
	}
	for _, k := range p.Packages {
		packed := filepath.Join(tmp, "package.tgz")
		if err := s.fetch(ctx, k, packed, func(got, total int64) { tell(Progress{in.Name, k.Name, got, total}) }); err != nil {
			return err
		}
		if err := unpack(packed, k, tree); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return unavailable(err)
	}
	if err := writeFile(filepath.Join(tree, manifest), b); err != nil {
		return unavailable(err)
	}
	to := filepath.Join(s.cfg.Dir, in.Tree)
	if err := durable.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return unavailable(err)
	}
	// A tree without its manifest is incomplete: move it away.
	if err := os.Rename(to, filepath.Join(tmp, "old")); err != nil && !os.IsNotExist(err) {
		return unavailable(err)
	}
	if err := readable(tree); err != nil {
		return unavailable(err)
	}
	for _, dir := range []string{s.cfg.Dir, filepath.Dir(to)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return unavailable(err)
		}
	}
	return unavailable(durable.Publish(tree, to))
}

// readable makes the directories of a tree readable for the users of boxes, whatever the umask was.
func readable(tree string) error {
	return filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
}

// point makes a tree the current one. Package durable cannot do it, because a symlink has no content.
func (s *Store) point(in Installed) error {
	dir := filepath.Join(s.cfg.Dir, in.Name)
	tmp := filepath.Join(dir, "."+pointer)
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return unavailable(err)
	}
	if err := os.Symlink(filepath.Base(in.Tree), tmp); err != nil {
		return unavailable(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, pointer)); err != nil {
		return unavailable(err)
	}
	return unavailable(durable.SyncDir(dir))
}

func writeFile(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return durable.Write(f, durable.Bytes(b))
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	e := holdfast.Errorf(holdfast.KindUnavailable, op, "the agent CLI cannot be installed: %w", err)
	if strings.Contains(err.Error(), "no space") {
		return e.WithHint("free space on the disk: an agent CLI takes up to 400 MB")
	}
	return e
}

// lock prevents concurrent installations into the directory.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
