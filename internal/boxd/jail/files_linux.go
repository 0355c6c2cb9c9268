package jail

import (
	"golang.org/x/sys/unix"
)

// maxFileThreads is how many file operations run at once in a box, without those in the places of
// sessions. The number is small because each needs a thread, and most of them wait for the same disk.
const maxFileThreads = 6

// pool runs functions on confined threads. These access files as the tools' user, have a seccomp filter and no
// capability, and are in a Landlock domain that does not allow /proc, if the kernel has Landlock.
type pool struct {
	uid   int // the tools' uid; -1 if boxd has the same uid
	rules int
	work  chan func()
	slots chan struct{}
	// at is the place whose files the threads see; nil for the files of the box.
	at *place
}

// newPool makes the pool of the box. It takes a slot for the pool's first thread, which Begin starts.
func newPool() *pool {
	p := &pool{uid: -1, rules: -1, work: make(chan func()), slots: make(chan struct{}, maxFileThreads)}
	p.slots <- struct{}{}
	return p
}

// confine sets the uid and the rule set for all threads of the pool, and completes the confinement of
// the first thread. It duplicates the descriptor rules; the caller still has to close it.
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

// filter does the first part of the confinement of the calling thread, which is locked: it enters the place, if the
// pool has one, and installs the seccomp filter. close does the rest.
func (p *pool) filter() error {
	if p.at != nil {
		if err := p.at.enter(); err != nil {
			return err
		}
	}
	return filterThread(seccompProgramFiles)
}

// close completes the confinement of the calling thread: its user for files, its capabilities and its Landlock domain.
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
