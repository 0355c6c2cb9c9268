// Package files carries out boxd's file operations: read, write, edit, stat, list,
// glob, grep, remove, mkdir, rename.
//
// It owns how a path of the protocol is resolved and opened. boxd imports it; it imports
// the standard library, golang.org/x/sys, the wire protocol and the vocabulary only.
// Invariants (I-19): no call blocks on what it opens (only regular files and
// directories are opened, everything else is refused); a file that is written has
// either its old or its new content whole, whenever the machine stops; memory, entries
// visited and time of a call are bounded, and every answer fits one frame.
//
// The calls run with the identity and confinement of tools on one OS thread: they start
// no goroutine and no process. Absolute paths are used as they are: package paths
// resolves every path below the box's "/" and through no magic link, and the rest works
// below an open directory. No call here hands the kernel a path that it would resolve
// any other way, and /proc is refused (TestNoPathsButThroughTheResolver).
package files

import (
	"crypto/rand"
	"io"
	"path/filepath"
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

// Config configures an FS. Paths are absolute.
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
	// MaxEntries is how many directory entries one glob or grep reads at most; 0 means 200,000.
	// If there are more, the answer is marked as truncated.
	MaxEntries int
	// MaxTime is how long one glob or grep may run; 0 means 20 s.
	MaxTime time.Duration
	// Now is the clock for MaxTime; nil means time.Now.
	Now func() time.Time
	// Rand is the source of the names of temporary files; nil means crypto/rand.
	Rand io.Reader
}

// FS serves file operations. It has no state of its own and is safe for
// concurrent use. Errors carry a Kind: not_found, denied, invalid, conflict (the
// file system's state refuses it) and too_large (a limit, or no space).
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
	top        string // set only in an FS with a scope: the path of the tree that is being packed
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

// describe makes a FileInfo. name is the path to show; link returns the target if the file is a
// symlink.
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
		// A symlink that vanished meanwhile is shown without a target.
		if target, err := link(); err == nil {
			out.Target = EncodeName(target)
		}
	}
	return out
}
