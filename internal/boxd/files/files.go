// Package files carries out boxd's file operations: read, write, edit, stat, list, glob, grep, remove,
// mkdir, rename, pack, unpack and watch.
//
// It owns how a path of the protocol is resolved and opened. cmd/boxd and the driver mem import it.
// It imports golang.org/x/sys, the wire protocol, the vocabulary, package tree and the packages
// paths and pattern. Invariants (I-19): no call blocks when it opens a file (for reading and
// writing it opens only regular files and directories); a file that is written has either all of
// its old or all of its new content, whenever the machine stops; the memory of a call is bounded,
// and so are the entries and the time of a search; every answer fits one frame.
//
// A call runs with the identity and confinement of a tool on one OS thread: it starts no goroutine
// and no process. Package paths resolves every path of a request: below the box's "/", and through
// no magic link of /proc. All other system calls get a name in an open directory
// (TestNoPathsButThroughTheResolver). Files of /proc are refused unless Config.Proc is set.
package files

import (
	"crypto/rand"
	"io"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// maxPath is the longest path of a request, in bytes, as in PATH_MAX.
	maxPath = 4096
	// maxEdit is the largest file, before and after, that Edit accepts, in bytes.
	maxEdit = 10 << 20
	// maxGrep is the largest file that Grep searches, in bytes.
	maxGrep = 10 << 20
	// answerBytes is how many bytes of JSON the entries of one answer may have: less than a
	// frame, so that the rest of the answer fits too.
	answerBytes = wire.MaxFrame - 8<<10
)

// Config configures an FS. Its paths are absolute.
type Config struct {
	// Workspace is the directory that relative paths start from.
	Workspace string
	// Home is the directory that "~/" stands for.
	Home string
	// Base is a directory that stands for "/": every absolute path is taken to be below it,
	// unless it is below it already. It is a convenience for drivers that do not isolate, not a
	// boundary: symlinks are followed as the kernel does. If Base is empty, absolute paths are
	// used unchanged.
	Base string
	// Umask limits the mode of new files if the request names none; nil means 022. The calling thread has the
	// same umask.
	Umask *uint32
	// Proc allows opening files of /proc. It is for a driver that does not isolate.
	Proc bool
	// MaxEntries is the number of directory entries after which a glob or a grep ends; 0 means
	// 200,000. If there are more, the answer is marked as truncated. Watch stops at 100,000 if MaxEntries is higher.
	MaxEntries int
	// MaxTime is how long a glob or a grep may run; 0 means 20 s.
	MaxTime time.Duration
	// Now is the clock for MaxTime; nil means time.Now.
	Now func() time.Time
	// Rand is the source of the names of temporary files; nil means crypto/rand.
	Rand io.Reader
}

// FS serves file operations. It is safe for concurrent use, except an FS that Within returned.
// Errors carry a Kind: not_found, denied, invalid, conflict (the state of the file system does not
// allow the operation), too_large (a limit is exceeded, or the disk is full), unavailable, internal.
//
// Paths in requests and answers are byte strings that must survive JSON: see
// EncodeName. Paths in answers of Stat, Glob and Grep are absolute.
type FS struct {
	door       door
	umask      uint32
	maxEntries int
	maxTime    time.Duration
	now        func() time.Time
	rand       io.Reader
	// locks are held during edits and writes: see target.lock.
	locks *[64]sync.Mutex
	// top is the directory that Pack reads or Unpack writes; set only if the FS has a scope.
	top string
}

// New makes an FS.
func New(cfg Config) *FS {
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = 200_000
	}
	if cfg.MaxTime <= 0 {
		cfg.MaxTime = 20 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if usual := uint32(0o022); cfg.Umask == nil {
		cfg.Umask = &usual
	}
	if cfg.Base != "" {
		cfg.Base = filepath.Clean(cfg.Base)
	}
	if cfg.Base == "/" {
		cfg.Base = ""
	}
	return &FS{
		door:  door{workspace: cfg.Workspace, home: cfg.Home, base: cfg.Base, proc: cfg.Proc},
		umask: *cfg.Umask, maxEntries: cfg.MaxEntries, maxTime: cfg.MaxTime, now: cfg.Now, rand: cfg.Rand,
		locks: &[64]sync.Mutex{},
	}
}

// Stat describes a path without following a final symlink.
func (f *FS) Stat(req wire.PathRequest) (wire.FileInfo, error) {
	const op = "file.stat"
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return wire.FileInfo{}, err
	}
	// O_PATH works for files without read permission too.
	fd, err := f.door.open(op, req.Path, path, paths.Way|unix.O_NOFOLLOW)
	if err != nil {
		return wire.FileInfo{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return wire.FileInfo{}, fail(op, req.Path, err)
	}
	return describe(f.door.shown(path), &st, func() (string, error) { return linkAt(fd, "") }), nil
}

// describe makes a FileInfo from a stat. name is the path that the FileInfo gets. describe calls
// link, which returns the target, only if the file is a symlink.
func describe(name string, st *unix.Stat_t, link func() (string, error)) wire.FileInfo {
	sec, nsec := st.Mtim.Unix()
	out := wire.FileInfo{
		Path:    EncodeName(name),
		Type:    wire.TypeOther,
		Size:    st.Size,
		Mode:    uint32(st.Mode) & 0o777,
		ModTime: time.Unix(sec, nsec).UTC(),
	}
	switch kindOfMode(uint32(st.Mode)) {
	case kindFile:
		out.Type = wire.TypeFile
	case kindDir:
		out.Type = wire.TypeDir
	case kindLink:
		out.Type = wire.TypeSymlink
		// A symlink that was removed since the stat is described without a target.
		if target, err := link(); err == nil {
			out.Target = EncodeName(target)
		}
	}
	return out
}
