package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Disk keeps boxes from filling the server's disk: no limit of the kernel does,
// so the pool looks. What a box writes between two looks is its overshoot.
type Disk struct {
	// Every is how often it looks while a box runs; 0 is every 2 seconds.
	Every time.Duration
	// Reserve is the part of the disk that stays free, between 0 and 1; 0 is none.
	// Below it no box starts, and of those that run the one that grew most is
	// stopped, one at each look, until none grows.
	Reserve float64
	// Limit is what the trees of one box may take; 0 is no limit. A box that was
	// over it when it started is stopped when it grows further: only a running box
	// can be tidied up.
	Limit int64
	// Space measures the disk. It is called at each look and each start of a box,
	// side by side.
	Space func() (DiskSpace, error)
	// Usage measures the trees of a box. It is called when the box starts and when
	// the disk filled up noticeably since.
	Usage func(ctx context.Context, box holdfast.BoxID) (DiskUsage, error)
}

// DiskSpace is what a file system has in all and free, in bytes and in files.
type DiskSpace struct{ Bytes, Free, Files, FreeFiles int64 }

// DiskUsage is what a box takes. Hidden: there is more, which could not be looked at.
type DiskUsage struct {
	Bytes, Files int64
	Hidden       bool
}

const (
	diskEvery = 2 * time.Second
	// diskStep is how much the disk fills up before trees are walked again, and
	// diskAge after what time they are in any case.
	diskStep = 64 << 20
	diskAge  = time.Minute
	// diskSlack is what may be added in trees that should not grow, and fileSlack
	// in files.
	diskSlack = 1 << 20
	fileSlack = 1 << 10
	// fileCost is what a file takes beside its content.
	fileCost = 512
)

// growth is what the watcher knows of a running box.
type growth struct {
	boot string
	// base is what it took when it was measured first, or last while there was
	// room; now is the last measure.
	base, now DiskUsage
}

func (g *growth) bytes() int64  { return g.now.cost() - g.base.cost() }
func (g *growth) files() int64  { return g.now.Files - g.base.Files }
func (u DiskUsage) cost() int64 { return u.Bytes + u.Files*fileCost }

// watcher looks at the disk. Its goroutine alone uses it.
type watcher struct {
	*Disk
	pool   *Pool
	boxes  map[holdfast.BoxID]*growth
	walked time.Time
	// free is what was free when the trees were last walked.
	free int64
}

// short says how much is missing to the reserve; ok when nothing is.
func (d *Disk) short(s DiskSpace) (missing int64, ok bool) {
	missing = int64(d.Reserve*float64(s.Bytes)) - s.Free
	files := int64(d.Reserve*float64(s.Files)) - s.FreeFiles
	return max(missing, 0), missing <= 0 && (s.Files == 0 || files <= 0)
}

// room refuses another box while the disk is below its reserve.
func (p *Pool) room() error {
	d := p.cfg.Disk
	if d == nil || d.Reserve <= 0 {
		return nil
	}
	s, err := d.Space()
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "the disk cannot be measured: %w", err)
	}
	if _, ok := d.short(s); !ok {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "%s of the disk are free, no box starts below %s",
			percent(s.Free, s.Bytes, s.FreeFiles, s.Files), percent(int64(d.Reserve*1e6), 1e6, 1, 1)).
			WithHint("remove sessions or other files from the disk of the data directory, or lower disk_reserve")
	}
	return nil
}

// percent is the smaller share.
func percent(bytes, all, files, allFiles int64) string {
	share := float64(bytes) / float64(max(all, 1))
	if allFiles > 0 {
		share = min(share, float64(files)/float64(allFiles))
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// watchDisk looks while boxes run, and at once when one started.
func (p *Pool) watchDisk() {
	w := &watcher{Disk: p.cfg.Disk, pool: p, boxes: map[holdfast.BoxID]*growth{}}
	every := w.Every
	if every <= 0 {
		every = diskEvery
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.grown:
		case <-timer.C:
		}
		timer.Stop()
		if w.look(p.ctx) {
			timer.Reset(every)
		}
	}
}

// look measures what has to be and stops at most one box. It says whether any
// box could still grow.
func (w *watcher) look(ctx context.Context) bool {
	running := w.running()
	if len(running) == 0 {
		return false
	}
	space, err := w.Space()
	if err != nil {
		return true // a disk that cannot be measured refuses the next box, see room
	}
	missing, ok := w.short(space)
	all := !ok || w.free-space.Free >= w.step() || time.Since(w.walked) >= diskAge
	for id, boot := range running {
		w.measure(ctx, id, boot, all)
	}
	if all {
		w.walked, w.free = time.Now(), space.Free
	}
	w.free = max(w.free, space.Free)
	if id, over := w.overLimit(); over > 0 {
		w.stop(ctx, id, "disk: over the limit of the box", over)
	} else if !ok {
		if id, found := w.grower(); found {
			w.stop(ctx, id, "disk: the server's reserve is used up", missing)
		}
	} else if all {
		w.settle()
	}
	return true
}

// step is the smallest change of the disk that trees are walked for.
func (w *watcher) step() int64 {
	if w.Limit > 0 {
		return min(diskStep, max(w.Limit/8, 1))
	}
	return diskStep
}

// running are the boxes that can grow, with their lives. What the watcher knew
// of others is forgotten.
func (w *watcher) running() map[holdfast.BoxID]string {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	out := map[holdfast.BoxID]string{}
	for id, e := range w.pool.boxes {
		if e.running && !e.frozen {
			out[id] = e.boot
		}
	}
	for id := range w.boxes {
		if e := w.pool.boxes[id]; e == nil || !e.running {
			delete(w.boxes, id)
		}
	}
	return out
}

// measure walks a box' trees: those of a new life in any case.
func (w *watcher) measure(ctx context.Context, id holdfast.BoxID, boot string, all bool) {
	g := w.boxes[id]
	fresh := g == nil || g.boot != boot
	if !fresh && !all {
		return
	}
	u, err := w.Usage(ctx, id)
	if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		u.Hidden = true
	}
	if fresh {
		w.boxes[id] = &growth{boot: boot, base: u, now: u}
		return
	}
	g.now = u
}

// overLimit is a box over its limit that grew, and by how much it is over.
func (w *watcher) overLimit() (id holdfast.BoxID, over int64) {
	if w.Limit <= 0 {
		return "", 0
	}
	for box, g := range w.boxes {
		if o := g.now.cost() - w.Limit; o > over && g.bytes() > diskSlack {
			id, over = box, o
		}
	}
	return id, over
}

// grower is the box that took most since there was room; when none did, one that
// hides what it took.
func (w *watcher) grower() (id holdfast.BoxID, found bool) {
	most := int64(0)
	for box, g := range w.boxes {
		if g.bytes() <= diskSlack && g.files() <= fileSlack {
			continue
		}
		if n := g.bytes() + g.files()*fileCost; n > most {
			id, most = box, n
		}
	}
	if most > 0 {
		return id, true
	}
	for box, g := range w.boxes {
		if g.now.Hidden {
			return box, true
		}
	}
	return "", false
}

// settle takes what there is, with room left, as what may be.
func (w *watcher) settle() {
	for _, g := range w.boxes {
		if w.Limit <= 0 || g.now.cost() <= w.Limit {
			g.base = g.now
		}
	}
}

// stop ends a box, whatever it does, and says why and how much too late. A
// failure shows at the next look.
func (w *watcher) stop(ctx context.Context, id holdfast.BoxID, reason string, over int64) {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	err := w.pool.with(ctx, id, func(e *entry) error {
		return w.pool.stopFor(ctx, e, holdfast.BoxEnded{Reason: reason, OvershootBytes: over}, 0)
	})
	if err == nil || errors.Is(err, context.Canceled) {
		delete(w.boxes, id)
	}
}

// grows wakes the watcher: a box began to run.
func (p *Pool) grows() {
	select {
	case p.grown <- struct{}{}:
	default:
	}
}
