package jail

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// oomRaise is added to boxd's OOM score to get that of the tools, so that the kernel kills tools before boxd (HZ-2).
const oomRaise = 700

// forker owns the confined threads that fork processes, and those that run file operations. All processes that see
// the same files and have the same layers are forked by one thread. So they are in one Landlock domain: a command can
// kill a server that an earlier command started, but cannot signal boxd.
type forker struct {
	jail *wire.Jail
	oom  int // descriptor of boxd's /proc/self/oom_score_adj; -1 if it cannot be opened
	home int // boxd's own OOM score

	crew
	umask int // the umask of the processes that the forker starts
	// shared says what each session of a shared box has for itself; nil in any other box.
	shared *wire.Shared
	trees  trees
	// patterns are the path rules that apply in the home of each session of a shared box.
	patterns wire.Walls
	// cgroups is the cgroup namespace of forking threads on cgroup v2; -1 if they need none.
	cgroups int
	places  map[*place]bool // guarded by the mutex mu

	mu     sync.Mutex // held during each fork, so that Gate waits for a fork in progress
	open   *sync.Cond
	closed bool

	cmu      sync.Mutex
	counters map[string]int
}

// crew are the confined threads that see the same files: those of the box, or of one session of a shared box.
type crew struct {
	plain *forkThread // forks processes without layers; in the crew of a place it is nil until its first use
	sets  layerSets   // guarded by the mutex mu of the forker
	file  *pool
	// at is the place to which the threads belong; nil for the threads of the box itself.
	at *place
}

func newForker(j *wire.Jail, oom int, t *Threads) *forker {
	f := &forker{jail: j, oom: oom, home: readScore(oom), umask: 0o022, shared: j.Shared, cgroups: -1, places: map[*place]bool{}, counters: map[string]int{}}
	f.plain, f.file = t.fork, t.files
	f.sets = layerSets{base: -1, threads: map[string]*forkThread{}}
	f.open = sync.NewCond(&f.mu)
	for name, fd := range j.Counters {
		f.counters[name] = fd
	}
	return f
}

// Threads are the first two confined threads. They are made before boxd has its configuration, and
// meanwhile get the restrictions that are the same in every box.
type Threads struct {
	fork  *forkThread
	files *pool
	begun chan error // receives the results of both threads, which say whether their filters are installed
}

// Begin starts the forking thread and the first thread for file operations, which then install their
// seccomp filters. It does so early, because the filters take most of the time. The filters still
// allow the system calls of the rest of the confinement.
func Begin() *Threads {
	t := &Threads{fork: newForkThread(), files: newPool(), begun: make(chan error, 2)}
	go t.fork.run(beginFork, t.begun)
	go serve(t.files.work, t.files.filter, t.begun)
	return t
}

// beginFork does the part of the confinement of the forking thread that is the same in every box. On
// cgroup v2 boxd is still in the cgroup above its own leaf and the work leaf. There the thread makes
// its cgroup namespace, because it may clone into the work leaf only if the namespace includes it.
func beginFork() error {
	if err := apart(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	return filterThread(seccompProgramClone3)
}

// apart gives the calling thread a working directory and umask of its own, which its children
// inherit. It also unshares the namespaces in flags.
func apart(flags int) error {
	return unix.Unshare(flags | unix.CLONE_FS)
}

func (t *Threads) wait() error { return errors.Join(<-t.begun, <-t.begun) }

// confine completes the confinement of the two threads of Begin. It keeps the rule set rules.tools for
// threads that are made later, for layers. The process must have its final uid and gid.
func (f *forker) confine(rules *rulesets) error {
	uid := f.jail.ToolUID
	if f.jail.SameUID {
		uid = -1
	}
	files := make(chan error, 1)
	go func() { files <- f.file.confine(uid, rules.files) }()
	err := f.plain.on(func() (err error) {
		if f.shared != nil && f.jail.WorkCgroup > 0 {
			f.cgroups, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/cgroup", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return errors.Join(err, f.confineFork(rules.tools))
	})
	f.sets.abi, f.sets.base, rules.tools = rules.abi, rules.tools, -1
	return errors.Join(err, <-files)
}

// confineFork completes the confinement of the calling thread as a forking thread. The thread has its seccomp filter
// already. domains are the Landlock rule sets for the thread.
func (f *forker) confineFork(domains ...int) error {
	_ = unix.Umask(f.umask)
	keep := []int{unix.CAP_SETUID, unix.CAP_SETGID}
	if f.jail.SameUID {
		keep = nil
	}
	if f.jail.WorkCgroup <= 0 {
		if err := loadFilter(noClone3); err != nil {
			return err
		}
	}
	if err := renounce(keep...); err != nil {
		return err
	}
	for _, rs := range domains {
		if err := restrict(rs); err != nil {
			return err
		}
	}
	return nil
}

// Fork implements boxd.Forker.
func (f *forker) Fork(spec boxd.StartSpec) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.closed {
		f.open.Wait()
	}
	of, open := &f.crew, opener(paths.Open)
	if p, ok := spec.Place.(*place); ok {
		of, open = &p.crew, func(path string, flags int) (int, error) { return paths.OpenIn(p.root, path, flags) }
	}
	dir, err := directory(open, spec.Dir)
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	if err := checkProgram(open, spec.Path); err != nil {
		return 0, err
	}
	t, err := f.thread(of, spec.Layers)
	if err != nil {
		return 0, err
	}
	var pid int
	err = t.on(func() (err error) {
		pid, err = f.fork(t, spec, dir)
		return err
	})
	if err != nil {
		return 0, explain(spec, err)
	}
	return pid, nil
}

// fork forks a process on the confined thread t, on which it runs. On cgroup v1 it first moves t into the work leaf,
// so that the child is in this leaf from its first instruction on; on v2 the kernel puts the child there. The thread
// stays in the work leaf until the gate closes, because moving it takes half as long as a fork.
//
// The thread enters the working directory, by its descriptor, and the child inherits it. If the child
// entered the directory by a path, it would still have boxd's descriptors at that moment, and a link
// to one of them in /proc/self/fd could lead it out of the box.
func (f *forker) fork(t *forkThread, spec boxd.StartSpec, dir int) (int, error) {
	if err := f.goTo(dir); err != nil {
		return 0, noDirectory(spec.Dir, err)
	}
	attr := &syscall.ProcAttr{
		Env:   spec.Env,
		Files: []uintptr{spec.Stdin.Fd(), spec.Stdout.Fd(), spec.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: spec.TTY},
	}
	if !f.jail.SameUID {
		id := uint32(f.jail.ToolUID)
		attr.Sys.Credential = &syscall.Credential{Uid: id, Gid: id, NoSetGroups: true}
	}
	if f.jail.WorkCgroup > 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, f.jail.WorkCgroup
	}
	if err := f.enter(t); err != nil {
		return 0, err
	}
	f.score(min(f.home+oomRaise, 1000))
	defer f.score(f.home)
	return syscall.ForkExec(spec.Path, spec.Argv, attr)
}

// opener opens a path as paths.Open does: among the files of the box, or among those that one session
// of a shared box sees.
type opener func(path string, flags int) (int, error)

// directory opens the working directory of a process; an empty path means "/". The caller closes it.
func directory(open opener, path string) (int, error) {
	fd, err := open(cmp.Or(path, "/"), paths.Way|unix.O_DIRECTORY)
	if err != nil {
		return -1, noDirectory(path, err)
	}
	return fd, nil
}

// checkProgram returns an error if the path of a program leads through a magic link of /proc, or
// through too many symlinks: the child still has boxd's descriptors at its exec, and such a link could
// lead to one of them. It ignores other errors, which the exec reports.
func checkProgram(open opener, path string) error {
	fd, err := open(path, paths.Way)
	if errors.Is(err, syscall.ELOOP) {
		return explain(boxd.StartSpec{Path: path}, err)
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return nil
}

// goTo makes an open directory the working directory of the calling thread, if the tools' user may enter it.
func (f *forker) goTo(dir int) error {
	if f.jail.SameUID {
		return unix.Fchdir(dir)
	}
	return asFileUser(f.jail.ToolUID, func() error { return unix.Fchdir(dir) })
}

// enter moves the calling thread t into the work leaf of each cgroup hierarchy (cgroup v1). If one
// move fails, it moves t back into boxd's leaf of each hierarchy.
func (f *forker) enter(t *forkThread) error {
	missing := f.jail.WorkTasks
	switch t.leaf {
	case leafWork:
		return nil
	case leafWorkButFreezer:
		missing = missing[:min(1, len(missing))]
	}
	for _, fd := range missing {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			f.leave(f.jail.BoxdTasks)
			t.leaf = leafBoxd
			return holdfast.Errorf(holdfast.KindUnavailable, opStart, "cannot move a thread into the cgroup of the box's tools: %w", err)
		}
	}
	t.leaf = leafWork
	return nil
}

// leaveFreezer moves the calling thread t out of the work leaf in the hierarchy of the freezer, which is the first.
func (f *forker) leaveFreezer(t *forkThread) {
	t.leaf = leafWorkButFreezer
	f.leave(f.jail.BoxdTasks[:min(1, len(f.jail.BoxdTasks))])
}

// leave moves the calling thread into boxd's own leaf of some cgroup hierarchies. tasks are descriptors
// of the files "tasks" of these leaves.
func (f *forker) leave(tasks []int) {
	for _, fd := range tasks {
		// Ignore an error: it means that the server has removed the leaf, because it ends this box.
		_, _ = unix.Write(fd, []byte("0"))
	}
}

// score sets boxd's OOM score, if boxd can write it. It is raised during a fork, because a child inherits it: if boxd
// set the score of the child after the fork, processes that the child had started before that would not have it.
func (f *forker) score(v int) {
	if f.oom >= 0 {
		_, _ = unix.Pwrite(f.oom, []byte(strconv.Itoa(v)), 0)
	}
}

// noDirectory returns the error for a working directory that cannot be opened or entered: not_found,
// denied, or invalid for any other cause.
func noDirectory(path string, err error) error {
	kind := holdfast.KindInvalid
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		kind = holdfast.KindNotFound
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		kind = holdfast.KindDenied
	}
	return holdfast.Errorf(kind, opStart, "no working directory %s for the command: %w", holdfast.Quote(path), err)
}

// opStart is the Op of errors about the start of a process.
const opStart = "start"

// explain turns the errno of a failed fork or exec into an error with a Kind. It returns an error with a Kind unchanged.
func explain(spec boxd.StartSpec, err error) error {
	errno, ok := err.(syscall.Errno)
	switch {
	case !ok && holdfast.KindOf(err) != holdfast.KindInternal:
		return err
	case errno == syscall.EAGAIN, errno == syscall.ENOMEM:
		return holdfast.Errorf(holdfast.KindBusy, opStart, "the box has reached its limit of processes (pids): %w", err).
			WithHint("end background processes of the box, or raise its pids limit")
	case errno == syscall.ENOENT, errno == syscall.ENOTDIR:
		return holdfast.Errorf(holdfast.KindNotFound, opStart, "no program %s, or the interpreter that it names is missing: %w", holdfast.Quote(spec.Path), err)
	case errno == syscall.EACCES, errno == syscall.EPERM:
		return holdfast.Errorf(holdfast.KindDenied, opStart, "the program %s may not run in the directory %s: %w", holdfast.Quote(spec.Path), holdfast.Quote(spec.Dir), err)
	}
	return holdfast.Errorf(holdfast.KindInvalid, opStart, "the program %s cannot run: %w", holdfast.Quote(spec.Path), err)
}

// Do implements boxd.Forker. fn must not pass its work to another goroutine: only the calling thread is confined.
func (f *forker) Do(fn func() error) error { return f.file.do(fn) }

// Gate implements boxd.Forker. When it closes the gate, it moves the forking threads out of the work leaf of the
// freezer, because a frozen thread of boxd would block boxd's garbage collector until the thaw (HZ-10).
func (f *forker) Gate(closed bool) {
	f.mu.Lock()
	f.closed = closed
	for _, t := range f.threads() {
		if closed && t.leaf == leafWork {
			_ = t.on(func() error { f.leaveFreezer(t); return nil })
		}
	}
	f.mu.Unlock()
	f.open.Broadcast()
}

// Counter implements boxd.Forker. On cgroup v2 it opens a file of the work leaf when it is read for
// the first time, because the files exist only after the driver has enabled their controllers.
func (f *forker) Counter(name string) (string, bool) {
	f.cmu.Lock()
	defer f.cmu.Unlock()
	fd, ok := f.counters[name]
	if !ok {
		file, known := v2Files[name]
		if !known || f.jail.WorkCgroup <= 0 {
			return "", false
		}
		var err error
		if fd, err = unix.Openat(f.jail.WorkCgroup, file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return "", false
		}
		f.counters[name] = fd
	}
	buf := make([]byte, 4096)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// v2Files maps the names of Jail.Counters to file names of cgroup v2.
var v2Files = map[string]string{
	"memory.events": "memory.events", "memory.usage": "memory.current", "memory.limit": "memory.max",
	"pids.events": "pids.events", "pids.current": "pids.current", "pids.max": "pids.max", "cpu": "cpu.stat",
}
