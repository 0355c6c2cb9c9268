package jail

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxSets is how many sets of layers a box, or one place of a shared box, can have. Each has a thread of its own.
const maxSets = 8

// layerSets holds the threads that fork processes with layers, one for each set of layers. A thread
// stays as long as the box or the place: its children are in its Landlock domain, and of later
// processes only those of this domain may signal them.
type layerSets struct {
	abi     int // Landlock version of the kernel; 0 without Landlock
	base    int // the tools' rule set; -1 without Landlock
	threads map[string]*forkThread
	// spare are threads for future sets of layers on cgroup v2. They were made before boxd moved to
	// its own leaf and dropped its capabilities: a later thread could not make the cgroup namespace
	// that it needs, which includes the work leaf.
	spare []*forkThread
}

// forkThread is a thread on which processes are forked.
type forkThread struct {
	work chan func()
	leaf leaf
}

// leaf says in which cgroups of cgroup v1 a thread is: those of boxd or those of the tools (work leaf).
type leaf int

const (
	leafBoxd leaf = iota
	leafWork
	// leafWorkButFreezer means the work leaf in all hierarchies except that of the freezer.
	leafWorkButFreezer
)

func newForkThread() *forkThread { return &forkThread{work: make(chan func())} }

// run makes the calling goroutine's thread the forking thread t: it calls begin, which confines the thread, and then
// runs the functions that the method on sends to it.
func (t *forkThread) run(begin func() error, begun chan<- error) {
	serve(t.work, func() error {
		boxd.UsualTimers()
		return begin()
	}, begun)
}

func (t *forkThread) on(fn func() error) error { return runOn(t.work, fn) }

// serve locks the calling goroutine to its thread, calls begin and sends begin's error to begun. If begin
// succeeded, it runs the functions from work until work is closed.
func serve(work <-chan func(), begin func() error, begun chan<- error) {
	// Never unlock the thread: a thread that is confined, even in part, must end with its goroutine.
	runtime.LockOSThread()
	err := begin()
	begun <- err
	if err != nil {
		return
	}
	for fn := range work {
		fn()
	}
	paths.Leave()
}

// runOn runs fn on a thread that runs the functions from the channel work (see serve), and returns fn's error.
func runOn(work chan<- func(), fn func() error) error {
	done := make(chan error, 1)
	work <- func() { done <- fn() }
	return <-done
}

// threads returns all forking threads except the spare ones. The caller holds f.mu.
func (f *forker) threads() []*forkThread {
	all := f.crew.threads()
	for p := range f.places {
		all = append(all, p.threads()...)
	}
	return all
}

func (c *crew) threads() []*forkThread {
	all := slices.Collect(maps.Values(c.sets.threads))
	if c.plain != nil {
		all = append(all, c.plain)
	}
	return all
}

// spares makes the spare threads for layers on cgroup v2, where they cannot be made later.
func (f *forker) spares() error {
	if f.jail.WorkCgroup <= 0 {
		return nil
	}
	begun := make(chan error, maxSets)
	for range maxSets {
		t := newForkThread()
		f.sets.spare = append(f.sets.spare, t)
		go t.run(func() error { return apart(unix.CLONE_NEWCGROUP) }, begun)
	}
	var all error
	for range maxSets {
		all = errors.Join(all, <-begun)
	}
	return all
}

// thread returns the forking thread of a crew for a set of layers, and makes it if it is missing. The caller holds f.mu.
func (f *forker) thread(of *crew, layers []wire.Layer) (*forkThread, error) {
	key := wire.LayersKey(layers)
	if key == "" && of.plain != nil {
		return of.plain, nil
	}
	if key == "" {
		t, err := f.layered(of, nil)
		of.plain = t
		return t, err
	}
	if t := of.sets.threads[key]; t != nil {
		return t, nil
	}
	if err := of.sets.held(f.jail.SameUID, layers); err != nil {
		return nil, err
	}
	if len(of.sets.threads) >= maxSets {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "start", "the box has path rules of %d agents already, the most it can enforce", maxSets).
			WithHint("give child agents the same allowedReadPaths and allowedWritePaths, or stop the box, which then forgets their path rules: holdfast containers stop ID")
	}
	t, err := f.layered(of, layers)
	if err != nil {
		return nil, err
	}
	of.sets.threads[key] = t
	return t, nil
}

// held returns an error if this kernel cannot enforce layers completely. With sameUID, the tools have the uid of
// boxd: without Landlock scopes they could signal boxd's threads, and processes that have other layers.
func (s *layerSets) held(sameUID bool, layers []wire.Layer) error {
	refuse := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindUnavailable, "start", "this machine cannot enforce path rules for one agent of a box: "+format, args...).
			WithHint("run the agent without allowedReadPaths and allowedWritePaths of its own, or run the server on Linux 6.12 or newer with Landlock")
	}
	switch {
	case s.base < 0 || s.abi < 1:
		return refuse("the kernel has no Landlock")
	case s.abi < 2:
		return refuse("Landlock of ABI %d refuses every rename across directories", s.abi)
	case s.abi < 6 && sameUID:
		return refuse("Landlock of ABI %d has no scopes, and the server does not run as root", s.abi)
	}
	for _, l := range layers {
		if l.Write != nil && s.abi < 3 {
			return refuse("Landlock of ABI %d lets files be truncated", s.abi)
		}
	}
	return nil
}

// layered makes a thread of a crew that forks processes with layers. The thread restricts itself with
// the tools' rule set and then with the rules of each layer. No other thread is in its Landlock
// domains, so its processes cannot signal or trace processes that another thread forked.
func (f *forker) layered(of *crew, layers []wire.Layer) (*forkThread, error) {
	domains := []int{of.sets.base}
	defer func() {
		for _, fd := range domains[1:] {
			_ = unix.Close(fd)
		}
	}()
	for _, l := range layers {
		if l.Read == nil && l.Write == nil {
			continue
		}
		fd, err := of.newLayer(l)
		if err != nil {
			return nil, err
		}
		domains = append(domains, fd)
	}
	confine := func() error {
		if err := filterThread(seccompProgramClone3); err != nil {
			return err
		}
		return f.confineFork(domains...)
	}
	if n := len(of.sets.spare); n > 0 {
		t := of.sets.spare[n-1]
		of.sets.spare = of.sets.spare[:n-1]
		if err := t.on(confine); err != nil {
			close(t.work) // ends the thread: it may be confined only in part, so it must not fork
			return nil, unavailable("thread for path rules", err)
		}
		return t, nil
	}
	t := newForkThread()
	begun := make(chan error, 1)
	go t.run(func() error {
		begin := func() error { return apart(0) }
		if of.at != nil {
			begin = of.at.enterFork
		}
		if err := begin(); err != nil {
			return err
		}
		return confine()
	}, begun)
	if err := <-begun; err != nil {
		return nil, unavailable("thread for path rules", err)
	}
	return t, nil
}

// layerRead and layerWrite are the Landlock rights that a layer with a list of read or write roots
// restricts. ioctls of devices are not among them: only the rules of the box restrict those. refer is
// the right to rename and link between directories.
const (
	layerRead  = llRead
	layerWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	refer = unix.LANDLOCK_ACCESS_FS_REFER
)

// alwaysRead and alwaysWritten are the paths that every layer allows to read or to write: directories
// of the system, directories for temporary files, and the usual devices.
var (
	alwaysRead = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/dev", "/sys",
		"/run/holdfast", "/tmp",
	}
	alwaysWritten = []string{
		"/tmp", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts",
	}
)

// newLayer makes the Landlock rule set of a layer, for the files that the threads of the crew see.
func (c *crew) newLayer(l wire.Layer) (fd int, err error) {
	if c.at == nil {
		return newLayer(l, c.sets.abi)
	}
	err = c.at.Own(func() (err error) { fd, err = newLayer(l, c.sets.abi); return err })
	return fd, err
}

// newLayer makes the Landlock rule set of a layer. The set handles the right REFER and grants it
// everywhere, because a set that does not handle REFER denies every rename between directories.
func newLayer(l wire.Layer, abi int) (int, error) {
	handled := uint64(refer)
	if l.Read != nil {
		handled |= layerRead
	}
	if l.Write != nil {
		handled |= layerWrite
	}
	handled &= handledFS(abi)
	set, err := createRuleset(&unix.LandlockRulesetAttr{Handled_access_fs: handled}, 8)
	if err != nil {
		return -1, unavailable("path rules", err)
	}
	if err := fillLayer(set, l, handled); err != nil {
		_ = unix.Close(set)
		if holdfast.KindOf(err) == holdfast.KindInternal {
			err = unavailable("path rules", err)
		}
		return -1, err
	}
	return set, nil
}

func fillLayer(set int, l wire.Layer, handled uint64) error {
	if err := grantBelow("/", refer, nil, set); err != nil {
		return err
	}
	denied, err := leads(l.Denied)
	if err != nil {
		return err
	}
	fixed, err := leads(l.ReadOnly)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		always, roots, denied []string
		access                uint64
	}{{alwaysRead, l.Read, denied, layerRead}, {alwaysWritten, l.Write, slices.Concat(denied, fixed), layerWrite}} {
		if x.access &= handled; x.access == 0 || x.roots == nil {
			continue
		}
		for _, p := range x.always {
			if err := grantBelow(p, x.access, nil, set); err != nil {
				return err
			}
		}
		for _, p := range x.roots {
			if err := grantBelow(p, x.access, x.denied, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// grantBelow adds to a rule set the access to the target of a path, and to everything below the target.
// It returns an error if one of the denied paths is the target, or is below or above it. It does nothing
// if the path cannot be reached.
func grantBelow(name string, access uint64, denied []string, set int) error {
	fd, err := openRoot(name)
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if len(denied) > 0 {
		real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return err
		}
		for _, d := range denied {
			if within(real, d) || within(d, real) {
				return holdfast.Errorf(holdfast.KindDenied, "start", "the allowed path %s leads to %s, but the path %s is denied: Landlock cannot allow a path and deny a part of it",
					holdfast.Quote(name), holdfast.Quote(real), holdfast.Quote(d)).
					WithHint("deny the path in the settings of the main agent, whose box then blocks it by a mount")
			}
		}
	}
	return grant(fd, access, set)
}

// openRoot opens the target of a path in a layer. It returns -1 without an error if the path does not
// exist or cannot be reached; the layer then allows nothing there.
func openRoot(name string) (int, error) {
	fd, err := paths.Open(path.Clean(name), paths.Way)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.ENAMETOOLONG):
		return -1, nil
	}
	return -1, fmt.Errorf("cannot open the path %s of an agent's path rules: %w", holdfast.Quote(name), err)
}

// leads returns the paths in roots, each followed by the real path of its target if the path can be reached.
func leads(roots []string) ([]string, error) {
	var out []string
	for _, r := range roots {
		out = append(out, path.Clean(r))
		fd, err := openRoot(r)
		if err != nil {
			return nil, err
		}
		if fd < 0 {
			continue
		}
		real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		_ = unix.Close(fd)
		if err != nil {
			return nil, err
		}
		out = append(out, real)
	}
	return out, nil
}
