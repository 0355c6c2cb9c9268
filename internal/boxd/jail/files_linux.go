package jail

import (
	"golang.org/x/sys/unix"
)

// maxFileThreads is how many file operations run at once. The number is small because each costs
// a thread, and the file operations of a box mostly wait for one disk.
const maxFileThreads = 6

// pool runs functions on threads with the rights of a tool: the tools' user for files, no
// capability, a Landlock domain without /proc, and the seccomp program.
type pool struct {
	uid   int // the tools' uid; -1 if boxd has it already
	rules int
	work  chan func()
	slots chan struct{}
	// at is the place whose files the threads see; nil for those of the box.
	at *place
}

// newPool makes a pool and reserves the slot of its first thread, which Begin starts. A box that
// cannot confine that thread does not start.
func newPool() *pool {
	p := &pool{uid: -1, rules: -1, work: make(chan func()), slots: make(chan struct{}, maxFileThreads)}
	p.slots <- struct{}{}
	return p
}

// confine sets the uid and the rule set for all threads of the pool, and completes the first
// thread with them. It duplicates rules, so the caller closes its own descriptor.
func (p *pool) confine(uid, rules int) error {
	p.uid = uid
	if rules >= 0 {
		fd, err := unix.FcntlInt(uintptr(rules), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		p.rules = fd
	}
	return runOn(p.work, p.close)
}

// filter and close confine the calling, locked thread: filter with seccomp, close with all else.
func (p *pool) filter() error {
	if p.at != nil {
		if err := p.at.enter(); err != nil {
			return err
		}
	}
	return filterThread(seccompProgramFiles)
}

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
		go serve(p.work, func() error {
			if err := p.filter(); err != nil {
				return err
			}
			return p.close()
		}, begun)
		if err := <-begun; err != nil {
			<-p.slots
			return unavailable("thread for file operations", err)
		}
		p.work <- job
	}
	return <-done
}
