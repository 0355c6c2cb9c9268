package jail

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// maxFileThreads is how many file operations run at once. They are few because
// each costs a thread, and a box' file operations mostly wait for one disk.
const maxFileThreads = 6

// pool runs functions on threads that may touch what a tool may: the tools' user
// for files, no capability, a Landlock domain without /proc, the seccomp program.
type pool struct {
	uid   int // -1: boxd has the tools' uid already
	rules int
	work  chan func()
	slots chan struct{}
}

// newPool is a pool that has a place for its first thread, which Begin starts: a box
// that cannot confine it never starts.
func newPool() *pool {
	p := &pool{uid: -1, rules: -1, work: make(chan func()), slots: make(chan struct{}, maxFileThreads)}
	p.slots <- struct{}{}
	return p
}

// confine sets the uid and the rule set of all threads of the pool, and completes the first thread
// with them. It duplicates the rule set: the caller closes its own.
func (p *pool) confine(uid, rules int) error {
	p.uid = uid
	if rules >= 0 {
		fd, err := unix.FcntlInt(uintptr(rules), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		p.rules = fd
	}
	done := make(chan error, 1)
	p.work <- func() { done <- p.close() }
	return <-done
}

// run calls begin on the calling goroutine's thread. If that succeeds, the thread serves the pool.
func (p *pool) run(begin func() error, begun chan<- error) {
	runtime.LockOSThread()
	err := begin()
	begun <- err
	if err != nil {
		return // still locked: the half-confined thread ends with its goroutine
	}
	for fn := range p.work {
		fn()
	}
}

// filter and close confine the calling, locked thread.
func (p *pool) filter() error { return filterThread(seccompProgramFiles) }

func (p *pool) close() error {
	if p.uid >= 0 {
		if err := fileIdentity(p.uid); err != nil {
			return err
		}
	}
	if err := renounce(); err != nil {
		return err
	}
	return restrict(p.rules)
}

func (p *pool) do(fn func() error) error {
	done := make(chan error, 1)
	job := func() { done <- fn() }
	select {
	case p.work <- job:
		return <-done
	default:
	}
	select {
	case p.work <- job:
	case p.slots <- struct{}{}:
		begun := make(chan error, 1)
		go p.run(func() error { return errors.Join(p.filter(), p.close()) }, begun)
		if err := <-begun; err != nil {
			<-p.slots
			return unavailable("file thread", err)
		}
		p.work <- job
	}
	return <-done
}
