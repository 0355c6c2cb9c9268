package permit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// maxLooks and lookTime bound the number and the total time of the path lookups of one decision.
	maxLooks = 2000
	lookTime = 2 * time.Second
	// maxListed is the largest number of directory entries that a pattern is matched against.
	maxListed = 5000
	// boxWorkspace and boxHome are the paths of the workspace and the home in a box.
	boxWorkspace, boxHome = "/workspace", "/home/agent"
)

// Links resolves symlinks among a session's files for one decision. It asks the session's box if
// that runs, and never starts one. Without a box it reads the workspace on the host, and reports
// other files as unknown. Safe for concurrent use.
type Links struct {
	//nolint:containedctx // an FS has no context, and this one lives as long as one call
	ctx context.Context
	box *sandbox.Box
	// tree reads the session's workspace on the host, used while box is nil.
	tree Tree
	// host are the directories of a trusted session; see On.
	host []Directory

	clock func() time.Time

	mu sync.Mutex
	// looks is the number of lookups and spent their total time. Both are reset, with the cached
	// results, after lookTime without a lookup: the decision may have waited for a person, and files
	// may have changed.
	looks int
	spent time.Duration
	last  time.Time
	seen  map[string]look
}

// look is the cached result of one Readlink.
type look struct {
	target string
	err    error
}

var _ check.FS = (*Links)(nil)

// Tree reads the symlinks and directories of a workspace on the host. Names are relative to the
// workspace.
type Tree interface {
	// Readlink fails with conflict if the path is not a symlink.
	Readlink(ctx context.Context, name string) (string, error)
	// ReadDir fails with too_large if there are more than most entries.
	ReadDir(ctx context.Context, name string, most int) ([]fs.DirEntry, error)
}

// NewLinks returns the Links of a session. box is the session's box if it runs, else nil; tree
// reads its workspace. Lookups end when ctx ends.
func NewLinks(ctx context.Context, box *sandbox.Box, tree Tree, clock func() time.Time) *Links {
	return &Links{ctx: ctx, box: box, tree: tree, clock: clock}
}

// Directory is a directory of a trusted session: its path on the host, where the session's tools have it, and its
// path in boxes, which the rules name.
type Directory struct{ Host, Box string }

// On tells l where the session has its workspace and its home: a trusted session has both on the host. l then treats
// their paths on the host as symlinks to their paths in boxes, so that a rule about /workspace/x also applies to the
// path of that file on the host.
func (l *Links) On(workspace, home string) *Links {
	for _, d := range []Directory{{workspace, boxWorkspace}, {home, boxHome}} {
		if d.Host == d.Box {
			continue
		}
		l.host = append(l.host, d)
		// The path may contain symlinks of the host: add the resolved path, too.
		if real, err := filepath.EvalSymlinks(d.Host); err == nil && real != d.Host {
			l.host = append(l.host, Directory{real, d.Box})
		}
	}
	return l
}

// onHost returns the path at which the session's tools have the file that rules call name.
func (l *Links) onHost(name string) string {
	for _, d := range l.host {
		if at, ok := moved(name, d.Box, d.Host); ok {
			return at
		}
	}
	return name
}

// moved replaces the directory from at the beginning of name by the directory to; false if name is not in from.
func moved(name, from, to string) (string, bool) {
	below, ok := strings.CutPrefix(name, from)
	return to + below, ok && (below == "" || below[0] == '/')
}

// Named returns the path by which rules name a file that the session's tools have at a clean absolute path.
func (l *Links) Named(name string) string {
	for _, d := range l.host {
		if at, ok := moved(name, d.Host, d.Box); ok {
			return at
		}
	}
	return name
}

// Readlink implements check.FS. Results are cached for the decision, until lookTime passes without a lookup.
func (l *Links) Readlink(name string) (string, error) {
	name = path.Clean(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.begin()()
	found, known := l.seen[name]
	if !known {
		found.target, found.err = l.readlink(name)
		l.seen[name] = found
	}
	return found.target, found.err
}

// begin starts the clock of one lookup; the returned function stops it.
func (l *Links) begin() func() {
	began := l.clock()
	if l.seen == nil || began.Sub(l.last) > lookTime {
		l.looks, l.spent, l.seen = 0, 0, map[string]look{}
	}
	return func() {
		l.last = l.clock()
		l.spent += l.last.Sub(began)
	}
}

// askable returns an error for a path that must not be looked up, or once the decision's limits are
// used up. In /proc the result depends on the asking process, and a name that is not valid JSON
// text would be another name in the box.
func (l *Links) askable(name string, list bool) error {
	switch {
	case name == "/proc" || strings.HasPrefix(name, "/proc/"):
		return syscall.EINVAL
	case name == boxWorkspace || name == boxHome:
		if l.box != nil && !list {
			return syscall.EINVAL // the workspace and the home are no symlinks: the driver makes them as directories
		}
	case !utf8.ValidString(name) || strings.IndexFunc(name, func(r rune) bool { return r >= 0xEF80 && r <= 0xEFFF }) >= 0:
		return fmt.Errorf("%w: the path %q is not valid text", check.ErrUnseen, name)
	}
	if l.looks++; l.looks > maxLooks || l.spent > lookTime {
		return fmt.Errorf("%w: the decision needs too many or too slow path lookups (limit %d in %s)", check.ErrUnseen, maxLooks, lookTime)
	}
	return nil
}

func (l *Links) readlink(name string) (string, error) {
	for _, d := range l.host {
		if name == d.Host {
			return d.Box, nil
		}
	}
	if err := l.askable(name, false); err != nil {
		return "", err
	}
	if l.box == nil {
		below, err := inWorkspace(name)
		if err != nil {
			return "", err
		}
		target, err := l.tree.Readlink(l.ctx, below)
		return target, system(err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, lookTime-l.spent)
	defer cancel()
	info, err := l.box.Stat(ctx, wire.PathRequest{Path: l.onHost(name)})
	switch {
	case err != nil && l.lost():
		return l.readlink(name)
	case err != nil:
		return "", system(err)
	case info.Type != wire.TypeSymlink:
		return "", syscall.EINVAL
	case info.Target == "":
		return "", fmt.Errorf("%w: the box did not give the target of the symlink %s", check.ErrUnseen, name)
	}
	return info.Target, nil
}

// ReadDir implements check.FS.
func (l *Links) ReadDir(name string) ([]check.Entry, error) {
	name = path.Clean(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.begin()()
	return l.readDir(name)
}

// lost reports whether the box has ended. If so, it sets box to nil, so that further lookups read the workspace on the
// host.
func (l *Links) lost() bool {
	select {
	case <-l.box.Done():
		l.box = nil
		return true
	default:
		return false
	}
}

func (l *Links) readDir(name string) ([]check.Entry, error) {
	if err := l.askable(name, true); err != nil {
		return nil, err
	}
	var out []check.Entry
	if l.box == nil {
		below, err := inWorkspace(name)
		if err != nil {
			return nil, err
		}
		list, err := l.tree.ReadDir(l.ctx, below, maxListed)
		for _, e := range list {
			out = append(out, check.Entry{Name: e.Name(), Link: e.Type()&fs.ModeSymlink != 0, Dir: e.IsDir()})
		}
		return out, system(err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, lookTime-l.spent)
	defer cancel()
	list, err := l.box.List(ctx, wire.ListRequest{Path: l.onHost(name), Limit: maxListed})
	switch {
	case err != nil && l.lost():
		return l.readDir(name)
	case err == nil && list.Truncated:
		return nil, syscall.E2BIG
	}
	for _, e := range list.Entries {
		out = append(out, check.Entry{Name: path.Base(e.Path), Link: e.Type == wire.TypeSymlink, Dir: e.Type == wire.TypeDir})
	}
	return out, system(err)
}

// inWorkspace converts a path in the box to one relative to the workspace; ErrUnknown for a path
// outside of it.
func inWorkspace(name string) (string, error) {
	if name == boxWorkspace {
		return ".", nil
	}
	if below, ok := strings.CutPrefix(name, boxWorkspace+"/"); ok {
		return below, nil
	}
	return "", check.ErrUnknown
}

// system translates an error of a lookup for check.FS. An error that is not about the path itself
// becomes ErrUnseen: the path was not looked at.
func system(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOTDIR), holdfast.IsKind(err, holdfast.KindNotFound):
		return fs.ErrNotExist
	case holdfast.IsKind(err, holdfast.KindConflict), holdfast.IsKind(err, holdfast.KindInvalid):
		return syscall.EINVAL
	case holdfast.IsKind(err, holdfast.KindDenied):
		return fs.ErrPermission
	case holdfast.IsKind(err, holdfast.KindTooLarge):
		return syscall.E2BIG
	}
	return fmt.Errorf("%w: a path lookup failed: %w", check.ErrUnseen, err)
}
