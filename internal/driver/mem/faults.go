package mem

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// faults are what tests ask to go wrong. Its lock comes after world's.
type faults struct {
	mu      sync.Mutex
	ensure  failing
	connect failing
	hangs   int
	delay   time.Duration
	killIn  map[holdfast.BoxID]int
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

func (f *faults) hang() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hangs == 0 {
		return false
	}
	f.hangs--
	return true
}

func (f *faults) slow() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delay
}

// FailEnsure makes the next n starts of boxes fail with err. Boxes that run are
// still found.
func (d *Driver) FailEnsure(n int, err error) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.ensure = failing{n, err}
}

// FailConnect makes the next n connections to running boxes fail with err.
func (d *Driver) FailConnect(n int, err error) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.connect = failing{n, err}
}

// HangHello makes the next n connections ones that nobody answers.
func (d *Driver) HangHello(n int) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.hangs = n
}

// SlowExec delays every process by that long after its start; 0 ends it.
func (d *Driver) SlowExec(by time.Duration) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.delay = by
}

// DropConnection breaks every pipe to the box; the box goes on.
func (d *Driver) DropConnection(id holdfast.BoxID) {
	if lf := d.w.alive(d.w.box(id, false)); lf != nil {
		lf.l.drop()
	}
}

// KillBox ends the box as SIGKILL would: processes and outcomes are lost, pipes
// break, and the next Ensure starts a new life. It returns when that is done.
// It reports false when the box does not run.
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

// KillBoxAtStart kills the box when the n-th process from now is about to be
// started in it: the call is recorded, and nobody will know whether it ran.
func (d *Driver) KillBoxAtStart(id holdfast.BoxID, n int) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	if d.w.faults.killIn == nil {
		d.w.faults.killIn = map[holdfast.BoxID]int{}
	}
	d.w.faults.killIn[id] = n
}

// KillForMemory kills the box's newest process as the kernel does when memory
// is out, and counts it. It reports false when there is none.
func (d *Driver) KillForMemory(id holdfast.BoxID) bool {
	lf := d.w.alive(d.w.box(id, false))
	return lf != nil && lf.m.oom()
}

// Gated reports whether boxd of a running box holds starts back.
func (d *Driver) Gated(id holdfast.BoxID) bool {
	lf := d.w.alive(d.w.box(id, false))
	if lf == nil {
		return false
	}
	lf.m.mu.Lock()
	defer lf.m.mu.Unlock()
	return lf.m.gated
}

// started counts process starts for KillBoxAtStart.
func (w *world) started(b *box, lf *life) {
	w.faults.mu.Lock()
	n, armed := w.faults.killIn[b.id]
	if armed {
		w.faults.killIn[b.id] = n - 1
		if n <= 1 {
			delete(w.faults.killIn, b.id)
		}
	}
	w.faults.mu.Unlock()
	if armed && n <= 1 {
		if lf.cut() {
			// The start that triggered it must fail before the rest can end.
			go lf.die()
		}
	}
}

// cut makes the life unreachable: no pipe, no listener, no process. Whoever is
// first has to call die.
func (lf *life) cut() (first bool) {
	lf.l.mu.Lock()
	first = !lf.l.isClosed()
	if first {
		lf.dying = make(chan struct{})
		// The pipes first: at the listener's end the server begins to end, and what
		// it then learns of its processes must reach nobody.
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

// die ends the server, and takes back what it flushed.
func (lf *life) die() {
	defer close(lf.dying)
	before, err := stateFiles(lf.state)
	lf.m.powerOff()
	lf.srv.Stop(0, "killed")
	<-lf.ended
	if err == nil {
		// Without it the next life knows outcomes that a kill would have lost.
		_ = restore(lf.state, before)
	}
}

// over waits until nothing of the life is under way any more.
func (lf *life) over() {
	<-lf.ended
	lf.l.mu.Lock()
	dying := lf.dying
	lf.l.mu.Unlock()
	if dying != nil {
		<-dying
	}
}

// restore makes a directory hold just these files.
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
