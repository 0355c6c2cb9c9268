package mem

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-run/holdfast"
)

// faults are the failures that tests have requested. Its lock is taken after that of world.
type faults struct {
	mu                     sync.Mutex
	ensure, connect, hangs failing
}

type failing struct {
	times int
	err   error
}

func (f *faults) take(what *failing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if what.times == 0 {
		return nil
	}
	what.times--
	return what.err
}

func (f *faults) set(what *failing, n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what = failing{n, err}
}

// FailEnsure makes the next n starts of boxes fail with err. It does not affect Ensure for boxes
// that already run.
func (d *Driver) FailEnsure(n int, err error) {
	d.w.faults.set(&d.w.faults.ensure, n, err)
}

// FailConnect makes the next n connections to running boxes fail with err.
func (d *Driver) FailConnect(n int, err error) {
	d.w.faults.set(&d.w.faults.connect, n, err)
}

// HangHello makes the next n connections hang: boxd does not get their other ends, so that no hello is answered.
func (d *Driver) HangHello(n int) {
	d.w.faults.set(&d.w.faults.hangs, n, os.ErrDeadlineExceeded)
}

// DropConnection breaks every connection to the box; the box keeps running.
func (d *Driver) DropConnection(id holdfast.BoxID) {
	if lf := d.w.alive(d.w.box(id, false)); lf != nil {
		lf.l.drop()
	}
}

// KillBox ends the box as SIGKILL would: processes and outcomes are lost, connections break, and
// the next Ensure starts a new life. It returns when that is done, and false if the box does not
// run.
func (d *Driver) KillBox(id holdfast.BoxID) bool {
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return false
	}
	if !lf.cut() {
		return false
	}
	lf.die()
	return true
}

// KillForMemory kills the box's newest process as the kernel does when memory runs out, and increments the counter of
// such kills. It returns false if the box has no process.
func (d *Driver) KillForMemory(id holdfast.BoxID) bool {
	lf := d.w.alive(d.w.box(id, false))
	return lf != nil && lf.m.oom()
}

// Gated reports whether the boxd of a running box holds back the start of processes.
func (d *Driver) Gated(id holdfast.BoxID) bool {
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return false
	}
	lf.m.mu.Lock()
	defer lf.m.mu.Unlock()
	return lf.m.gated
}

// cut makes the box unreachable: it closes the connections and the listener and refuses new processes. It returns true
// for the first caller, who must then call die.
func (lf *life) cut() (first bool) {
	lf.l.mu.Lock()
	first = !lf.l.isClosed()
	if first {
		lf.dying = make(chan struct{})
		// Close the connections first: when the listener ends, the server begins to stop, and its
		// reports about ended processes must not reach a client.
		for c := range lf.l.open {
			_ = c.Close()
		}
		clear(lf.l.open)
		close(lf.l.closed)
	}
	lf.l.mu.Unlock()
	lf.m.mu.Lock()
	lf.m.off = true
	lf.m.mu.Unlock()
	return first
}

// die kills the processes and ends the box's server after cut, and puts the state directory back as it was before.
func (lf *life) die() {
	defer close(lf.dying)
	before, err := stateFiles(lf.state)
	lf.m.powerOff()
	lf.srv.Stop(0, "killed")
	<-lf.ended
	if err == nil {
		// A real kill loses these outcomes; without restore the next boot of the box would still have them.
		_ = restore(lf.state, before)
	}
}

// over waits until the box's server has returned and a kill of the box is complete.
func (lf *life) over() {
	<-lf.ended
	lf.l.mu.Lock()
	dying := lf.dying
	lf.l.mu.Unlock()
	if dying != nil {
		<-dying
	}
}

// restore makes a directory contain exactly these files.
func restore(dir string, content map[string][]byte) error {
	now, err := stateFiles(dir)
	if err != nil {
		return err
	}
	for name := range now {
		if _, ok := content[name]; !ok {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name, b := range content {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
