package mem

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
)

// faults are the failures that tests have requested. Its lock is taken after that of world.
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

// FailEnsure makes the next n starts of boxes fail with err. It does not affect Ensure for boxes
// that already run.
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

// HangHello makes the next n connections hang: nobody answers at their other end.
func (d *Driver) HangHello(n int) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.hangs = n
}

// SlowExec delays every process by that time after its start; 0 ends the delay.
func (d *Driver) SlowExec(by time.Duration) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	d.w.faults.delay = by
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

// KillBoxAtStart kills the box when the n-th process from now is about to start in it. The call
// is recorded, and it stays unknown whether it ran.
func (d *Driver) KillBoxAtStart(id holdfast.BoxID, n int) {
	d.w.faults.mu.Lock()
	defer d.w.faults.mu.Unlock()
	if d.w.faults.killIn == nil {
		d.w.faults.killIn = map[holdfast.BoxID]int{}
	}
	d.w.faults.killIn[id] = n
}

// KillForMemory kills the box's newest process as the kernel does when memory runs out, and
// increments the counter. It returns false if the box has no process.
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

// started is called at each start of a process and kills the box if KillBoxAtStart has requested that.
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

// cut makes the life unreachable: it closes its connections and its listener and kills its
// processes. The first caller, for whom it returns true, must then call die.
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

// die ends the server and restores the state directory as it was before the server's last writes.
func (lf *life) die() {
	defer close(lf.dying)
	before, err := stateFiles(lf.state)
	lf.m.powerOff()
	lf.srv.Stop(0, "killed")
	<-lf.ended
	if err == nil {
		// Without restore, the next life would know outcomes that a real kill loses.
		_ = restore(lf.state, before)
	}
}

// over waits until the life has ended completely.
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
