package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxPlaceFiles is how many file operations run at once in one place.
const maxPlaceFiles = 2

// place is the part of a shared box that only one session has: a mount namespace, in which the session's home and
// empty temporary directories are mounted over those of the box, and threads in this namespace. The home is mounted
// in no other namespace, so no path leads there from another session. The Landlock domain of each forking thread
// prevents its processes from reaching the home of another session through /proc.
type place struct {
	f *forker
	crew
	ns    int // descriptor of the mount namespace
	root  int // descriptor of "/" in this namespace
	rules *rulesets
	walls []*node // walls in the home, for those path rules of the box that are patterns
}

var _ boxd.Sharer = (*forker)(nil)

// Join implements boxd.Sharer.
func (f *forker) Join(mounts []*os.File) (boxd.Place, error) {
	if f.shared == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the box was not started for several sessions")
	}
	fds := make([]int, len(mounts))
	for i, m := range mounts {
		fds[i] = int(m.Fd())
		top, err := isTop(fds[i])
		if err == nil && !top {
			err = holdfast.Errorf(holdfast.KindInvalid, op, "a directory of the joining session is not a detached mount")
		}
		if err != nil {
			return nil, err
		}
	}
	p, err := f.newPlace(fds)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// newPlace makes a place. mounts are detached mounts: of the session's home and, if there is a second one, of the
// directory of its agent. tryPlace passes none.
func (f *forker) newPlace(mounts []int) (*place, error) {
	p := &place{f: f, ns: -1, root: -1}
	p.crew = crew{at: p, sets: layerSets{abi: f.sets.abi, base: -1, threads: map[string]*forkThread{}}}
	if err := onNewThread(func() error { return p.build(mounts) }); err != nil {
		p.close()
		if holdfast.KindOf(err) == holdfast.KindInternal {
			err = unavailable("place of a session", err)
		}
		return nil, err
	}
	p.sets.base = p.rules.tools
	p.file = &pool{uid: f.file.uid, rules: p.rules.files, work: make(chan func()), slots: make(chan struct{}, maxPlaceFiles), at: p}
	f.mu.Lock()
	f.places[p] = true
	f.mu.Unlock()
	if err := p.prove(); err != nil {
		p.End()
		return nil, err
	}
	return p, nil
}

// prove makes a confined thread of the place try whether the walls in the home have their effect.
func (p *place) prove() error {
	if len(p.walls) == 0 {
		return nil
	}
	return p.Do(proofOf(p.walls))
}

// homeWalls builds the walls for files that match patterns in the home that the calling thread sees.
// The other path rules of a shared box are not about files in a home.
func (f *forker) homeWalls() ([]*node, error) {
	if len(f.patterns.Patterns)+len(f.patterns.WritePatterns) == 0 {
		return nil, nil
	}
	w := &walls{spec: f.patterns, grounds: grounds{home: f.trees.home}, tool: -1, nodes: map[string]*node{}, made: map[string]bool{}}
	var err error
	if w.root, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	defer unix.Close(w.root)
	if w.masks, err = readMasks(w.root); err != nil {
		return nil, err
	}
	// w.apply opens the mask files by paths relative to "/".
	if err := unix.Chdir("/"); err != nil {
		return nil, err
	}
	err = steps([]step{{"patterns", w.expand}, {"mounts of path rules", w.apply}})
	return w.list(), err
}

// patternsFor returns the patterns of path rules that can match dir or a file below it.
func patternsFor(w *wire.Walls, dir string) wire.Walls {
	var out wire.Walls
	if w == nil {
		return out
	}
	for _, l := range []struct {
		from []string
		to   *[]string
	}{{w.Patterns, &out.Patterns}, {w.WritePatterns, &out.WritePatterns}} {
		for _, g := range l.from {
			fixed := g
			if at := strings.IndexAny(g, `*?[\`); at >= 0 {
				fixed = g[:at]
			}
			fixed = path.Clean(fixed[:strings.LastIndexByte(fixed, '/')+1])
			if within(fixed, dir) || within(dir, fixed) {
				*l.to = append(*l.to, g)
			}
		}
	}
	return out
}

// onNewThread runs fn in a new goroutine that is locked to its thread. The thread ends after fn.
func onNewThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		done <- fn()
	}()
	return <-done
}

// build makes the mount namespace of the place. It runs on a thread that ends afterwards.
func (p *place) build(mounts []int) error {
	if err := p.f.keeper(true); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("cannot make a mount namespace for the session: %w", err)
	}
	// Mounts that are made in the box's workspace later (the driver mends walls) appear in this namespace too; mounts
	// made in this namespace appear in no other.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	_ = unix.Umask(0)
	for _, m := range p.f.shared.Private {
		if err := unix.Mount(m.FSType, m.Target, m.FSType, flags(m), m.Data); err != nil {
			return fmt.Errorf("cannot make the session's own mount at %s: %w", m.Target, err)
		}
	}
	var err error
	for i, m := range mounts {
		at := p.f.trees.home
		if i > 0 {
			at = p.f.shared.Agent
			err = os.Mkdir(at, 0o755)
		}
		if err == nil {
			err = unix.MoveMount(m, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return fmt.Errorf("cannot make the session's own mount at %s: %w", at, err)
		}
	}
	if p.walls, err = p.f.homeWalls(); err != nil {
		return err
	}
	if p.rules, err = p.f.trees.rulesets(p.f.sets.abi); err != nil {
		return err
	}
	if p.root, err = unix.Open("/", paths.Way|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	p.ns, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return err
}

// enter moves the calling thread, which is locked, into the place. The capabilities that keeping
// returns stay effective on the thread; the caller has to drop them.
func (p *place) enter() error {
	if err := p.f.keeper(true); err != nil {
		return err
	}
	if err := apart(0); err != nil {
		return err
	}
	_ = unix.Umask(p.f.umask)
	if err := unix.Setns(p.ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot enter the session's mount namespace: %w", err)
	}
	return paths.Enter()
}

// enterFork does the same as enter for a forking thread, and on cgroup v2 also moves it into the cgroup namespace that
// forking threads need.
func (p *place) enterFork() error {
	if err := p.enter(); err != nil || p.f.cgroups < 0 {
		return err
	}
	return unix.Setns(p.f.cgroups, unix.CLONE_NEWCGROUP)
}

// Do implements boxd.Place.
func (p *place) Do(fn func() error) error { return p.file.do(fn) }

// Own implements boxd.Place.
func (p *place) Own(fn func() error) error {
	return onNewThread(func() error {
		err := p.enter()
		defer paths.Leave()
		if err = errors.Join(err, p.f.keeper(false)); err != nil {
			return unavailable("place of a session", err)
		}
		return fn()
	})
}

// End implements boxd.Place.
func (p *place) End() {
	f := p.f
	f.mu.Lock()
	delete(f.places, p)
	threads := p.threads()
	f.mu.Unlock()
	for _, t := range threads {
		_ = t.on(f.killDomain)
		close(t.work)
	}
	close(p.file.work)
	p.close()
}

// killDomain kills all processes in the Landlock domain of the calling thread. It does nothing if the kernel does not
// limit signals to the domain, because they would reach other processes too. After killDomain the thread must not fork.
func (f *forker) killDomain() error {
	if f.sets.abi < 6 {
		return nil
	}
	if !f.jail.SameUID {
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(f.jail.ToolUID), keep); errno != 0 {
			return errno
		}
	}
	return unix.Kill(-1, unix.SIGKILL)
}

// close closes the descriptors of the place. Its mount namespace ends when no thread and no process is in it.
func (p *place) close() {
	for _, fd := range []int{p.ns, p.root} {
		_ = unix.Close(fd) // fails without harm for the value -1 of a descriptor that was not opened
	}
	if p.rules != nil {
		p.rules.close()
	}
}

// propagate makes mounts in the workspace of a shared box appear in the namespaces of its places too, so that walls
// that the driver mends later also have their effect there.
func (e *entry) propagate() error {
	if e.jail.Shared == nil {
		return nil
	}
	return unix.Mount("", e.cfg.Workspace, "", unix.MS_REC|unix.MS_SHARED, "")
}

// tryPlace makes a place, starts its threads and ends it. If that fails, the shared box does not start.
func (e *entry) tryPlace() error {
	if e.jail.Shared == nil {
		return nil
	}
	p, err := e.forker.newPlace(nil)
	if err != nil {
		return err
	}
	defer p.End()
	if err := p.Do(func() error { return paths.IsDir(e.cfg.Tmp) }); err != nil {
		return err
	}
	e.forker.mu.Lock()
	defer e.forker.mu.Unlock()
	if _, err := e.forker.thread(&p.crew, nil); err != nil {
		return err
	}
	e.force("session-namespaces")
	return nil
}
