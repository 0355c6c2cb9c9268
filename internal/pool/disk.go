package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Disk configures how the pool prevents boxes from filling the server's disk. The kernel enforces
// no such limit, so the pool measures the disk periodically; a box may exceed its limit by what
// it writes between two measurements.
type Disk struct {
	// Every is the interval of the measurements while a box runs; 0 means 2 seconds.
	Every time.Duration
	// Reserve is the share of the disk that must stay free, between 0 and 1; 0 means none. While
	// less is free, no box starts, and each measurement stops the running box that grew most,
	// until no box grows.
	Reserve float64
	// Hostile means that boxes may take space in ways that cannot be measured. If the reserve is
	// used up and no box is known to have grown, a box that wrote is stopped; while the disk
	// continues to fill up, or less than half of the reserve is free, any box may be stopped.
	Hostile bool
	// Limit is how many bytes the directories of one box may take; 0 means no limit. Each file
	// counts with its content plus the disk's bytes per inode. A box that exceeds its limit when
	// it starts is stopped only when it grows further, because its files can be removed only
	// while it runs.
	Limit int64
	// LimitOf returns the limit of one box; 0 means none. If Limit is set, too, the lower of the two applies. May be nil.
	LimitOf func(ctx context.Context, box holdfast.BoxID) int64
	// Space measures the disk. It is called at each measurement and, if Reserve is set, at each start of a box. These
	// calls may overlap.
	Space func() (DiskSpace, error)
	// Usage measures the directories of a box. It is called when the box starts, when the disk has filled up noticeably
	// since, once a minute, and at each measurement while less than Reserve is free. The driver measures deleted files
	// that processes hold open: see sandbox.Holder.
	Usage func(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error)
}

// DiskSpace is the size of a file system and how much of it is free, in bytes and in files.
type DiskSpace struct{ Bytes, Free, Files, FreeFiles int64 }

const (
	diskEvery = 2 * time.Second
	// diskStep is the decrease of free bytes after which all boxes are measured again; a box with a low limit makes the
	// step smaller. After diskAge all boxes are measured in any case.
	diskStep = 64 << 20
	diskAge  = time.Minute
	// diskSlack and fileSlack are how many bytes and files a box may add and still count as a box
	// that did not grow.
	diskSlack = 1 << 20
	fileSlack = 1 << 10
	// fileCost is how many bytes a file counts at least, in addition to its content.
	fileCost = 512
)

// growth records how the disk usage of a running box has grown.
type growth struct {
	boot string
	// base is the box's usage at its first measurement, or at its last one while the disk had
	// room; now is its usage at the latest measurement.
	base, now sandbox.DiskUsage
	// dark is how many bytes the box may have taken in places that cannot be measured: what the
	// disk lost while the box hid something, beyond what was measured.
	dark int64
	// limit is how many bytes the box may take; 0: no limit.
	limit int64
}

// charged returns the usage that counts against the box's limit, with dark.
func (g *growth) charged() sandbox.DiskUsage {
	u := g.now
	u.Bytes += g.dark
	return u
}

func (g *growth) files() int64   { return g.now.Files - g.base.Files }
func (g *growth) written() int64 { return max(g.now.Written-g.base.Written, 0) }

// runners are the boxes that the watcher measures and may stop.
type runners interface {
	// running returns the running boxes. Frozen ones are marked: they cannot grow.
	running() map[holdfast.BoxID]runner
	// end stops a box at once, even if it is in use.
	end(ctx context.Context, id holdfast.BoxID, ended holdfast.BoxEnded) error
}

// runner is a running box: the id of its start, and whether it is frozen.
type runner struct {
	boot   string
	frozen bool
}

// watcher measures the disk and stops boxes that take too much of it. refuses and grows are safe
// for concurrent use; everything else may only be used by the goroutine that runs watch.
type watcher struct {
	// Disk is nil if the disk is not watched.
	*Disk
	// holder measures deleted files that processes hold open; nil if the driver cannot.
	holder  sandbox.Holder
	crowded crowds
	// grown receives a value when a box is connected or thawed.
	grown chan struct{}

	runners runners
	boxes   map[holdfast.BoxID]*growth
	// dark holds growth.dark of the boxes that hid something when they were last measured. It
	// outlives the box, because hidden space stays taken when the box ends.
	dark   map[holdfast.BoxID]int64
	walked time.Time
	// left is how many bytes were free when all boxes were last measured, at the time walked;
	// free and files are the most bytes and files that were free since.
	left, free, files int64
	// low is how many bytes were free when the reserve was found used up, or at the last stop of
	// a box since; negative while the disk has room.
	low int64
	// perFile is how many bytes a file counts on this disk, in addition to its content.
	perFile int64
}

// short returns how many more bytes must become free until the reserve is free. ok is true if the reserve is free.
func (d *Disk) short(s DiskSpace) (missing int64, ok bool) {
	missing = int64(d.Reserve*float64(s.Bytes)) - s.Free
	files := int64(d.Reserve*float64(s.Files)) - s.FreeFiles
	return max(missing, 0), missing <= 0 && (s.Files == 0 || files <= 0)
}

func newWatcher(d *Disk) *watcher {
	return &watcher{
		Disk: d, grown: make(chan struct{}, 1), boxes: map[holdfast.BoxID]*growth{}, dark: map[holdfast.BoxID]int64{},
		low: -1, perFile: fileCost,
	}
}

// refuses returns an error if a box must not start: the disk is below its reserve, or the box was
// stopped recently because of its number of files.
func (w *watcher) refuses(id holdfast.BoxID) error {
	if w.Disk == nil {
		return nil
	}
	if err := w.room(); err != nil {
		return err
	}
	return w.crowded.refuses(id)
}

// grows notifies the watcher that a box was connected or thawed, so that it is measured soon.
func (w *watcher) grows() {
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// room returns an error, so that no box starts, while the disk is below its reserve or cannot be measured.
func (d *Disk) room() error {
	if d.Reserve <= 0 {
		return nil
	}
	s, err := d.Space()
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "the free space of the disk cannot be measured: %w", err)
	}
	if _, ok := d.short(s); !ok {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "no box can start: %s of the disk is free, less than the reserve of %s",
			percent(s.Free, s.Bytes, s.FreeFiles, s.Files), percent(int64(d.Reserve*1e6), 1e6, 1, 1)).
			WithHint("remove sessions or other files from the disk of the data directory, or lower disk_reserve")
	}
	return nil
}

// percent returns the smaller of the two shares bytes/all and files/allFiles, in percent.
func percent(bytes, all, files, allFiles int64) string {
	share := float64(bytes) / float64(max(all, 1))
	if allFiles > 0 {
		share = min(share, float64(files)/float64(allFiles))
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// watch measures the disk while boxes run, and at once when a box has started, until ctx ends.
func (w *watcher) watch(ctx context.Context, boxes runners) {
	w.runners = boxes
	every := w.Every
	if every <= 0 {
		every = diskEvery
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.grown:
		case <-timer.C:
		}
		timer.Stop()
		if next, any := w.look(ctx); any {
			timer.Reset(min(every, next))
		}
	}
}

// look measures the disk and the boxes that are due, and stops one box at most. It returns how
// long until the next measurement at the latest, and whether any box can still grow.
func (w *watcher) look(ctx context.Context) (next time.Duration, any bool) {
	running := w.growing()
	if len(running) == 0 {
		w.walked = time.Time{}
		return 0, false
	}
	space, err := w.Space()
	if err != nil {
		return slowest, true // room refuses further boxes while the disk cannot be measured
	}
	w.perFile = space.perFile()
	missing, ok := w.short(space)
	all := !ok || w.filled(space) || time.Since(w.walked) >= diskAge
	w.measureAll(ctx, running, all, space)
	w.free, w.files = max(w.free, space.Free), max(w.files, space.FreeFiles)
	switch {
	case ok:
		w.low = -1
	case w.low < 0:
		w.low = space.Free
	}
	if id, over := w.overLimit(); over > 0 {
		w.stop(ctx, id, w.overReason(id), over)
	} else if id, over := w.crowding(space); over > 0 {
		w.crowded.add(id)
		w.stop(ctx, id, "disk: the box has more files than the disk has room for", over*w.perFile)
	} else if !ok {
		if id, found := w.suspect(space); found {
			w.low = space.Free
			w.stop(ctx, id, "disk: the server's reserve is used up", missing)
		}
	} else if all {
		w.settle(space)
	}
	return w.pace(space), true
}

// filled reports whether the disk has filled up so much that all boxes must be measured again.
func (w *watcher) filled(s DiskSpace) bool {
	return w.free-s.Free >= w.step() || w.files-s.FreeFiles >= w.fileStep(s)
}

// step is the smallest decrease of free bytes after which all boxes are measured.
func (w *watcher) step() int64 {
	step := int64(diskStep)
	for _, g := range w.boxes {
		if g.limit > 0 {
			step = min(step, max(g.limit/8, fileCost))
		}
	}
	return step
}

// limit returns how many bytes a box may take; 0 means that it has no limit.
func (w *watcher) limit(ctx context.Context, id holdfast.BoxID) int64 {
	if w.LimitOf != nil {
		if own := w.LimitOf(ctx, id); own > 0 && (w.Limit <= 0 || own < w.Limit) {
			return own
		}
	}
	return max(w.Limit, 0)
}

// growing returns the boxes that can grow, with the boot ids of their starts. It forgets the
// measurements of boxes that no longer run.
func (w *watcher) growing() map[holdfast.BoxID]string {
	running, out := w.runners.running(), map[holdfast.BoxID]string{}
	for id, r := range running {
		if !r.frozen {
			out[id] = r.boot
		}
	}
	for id := range w.boxes {
		if _, runs := running[id]; !runs {
			delete(w.boxes, id)
		}
	}
	return out
}

// measureAll measures the boxes that started since the last time, or if all is true every box.
// Space that the disk lost since all boxes were measured, and that no measurement explains, is
// charged to the boxes that hide something.
func (w *watcher) measureAll(ctx context.Context, running map[holdfast.BoxID]string, all bool, space DiskSpace) {
	dark := w.left - space.Free
	hiding := map[holdfast.BoxID]*growth{}
	for id, boot := range running {
		g := w.boxes[id]
		if g == nil || g.boot != boot {
			g = &growth{boot: boot, now: w.measure(ctx, id), dark: w.dark[id], limit: w.limit(ctx, id)}
			g.base = g.charged()
			w.boxes[id] = g
			continue
		}
		if !all {
			continue
		}
		u := w.measure(ctx, id)
		g.limit = w.limit(ctx, id)
		dark -= u.Bytes - g.now.Bytes
		if g.now = u; u.Hidden {
			hiding[id] = g
		} else {
			g.dark = 0
			delete(w.dark, id)
		}
	}
	if !all {
		return
	}
	if !w.walked.IsZero() {
		for id, g := range hiding {
			g.dark = max(g.dark+dark, 0)
			w.dark[id] = g.dark
		}
	}
	w.walked, w.left = time.Now(), space.Free
	w.free, w.files = space.Free, space.FreeFiles
}

// measure returns the disk usage of a box. It measures the deleted files that processes hold open
// before it walks the directories, so that a file that is deleted in between is not counted twice.
func (w *watcher) measure(ctx context.Context, id holdfast.BoxID) sandbox.DiskUsage {
	var held sandbox.DiskUsage
	if w.holder != nil {
		var err error
		held, err = w.holder.Held(ctx, id)
		held.Hidden = held.Hidden || unmeasured(err)
	}
	u, err := w.Usage(ctx, id)
	return sandbox.DiskUsage{
		Bytes: u.Bytes + held.Bytes, Files: u.Files + held.Files, Written: held.Written,
		Hidden: u.Hidden || held.Hidden || unmeasured(err),
	}
}

// unmeasured reports whether err means that the box may use more than was measured. That is not
// so if the box is gone.
func unmeasured(err error) bool { return err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) }

// overLimit returns the box that grew and exceeds its limit by most, and by how many bytes.
func (w *watcher) overLimit() (id holdfast.BoxID, over int64) {
	for box, g := range w.boxes {
		if o := w.cost(g.charged()) - g.limit; g.limit > 0 && o > over && w.grew(g) > diskSlack {
			id, over = box, o
		}
	}
	return id, over
}

func (w *watcher) overReason(id holdfast.BoxID) string {
	if g := w.boxes[id]; w.cost(g.now) <= g.limit {
		return "disk: the box hides files, and may be over its limit"
	}
	return "disk: over the limit of the box"
}

// suspect returns the box to stop when the reserve is used up: the one that grower returns, or
// for hostile boxes the one that lastResort returns.
func (w *watcher) suspect(space DiskSpace) (holdfast.BoxID, bool) {
	if id, found := w.grower(); found || !w.Hostile {
		return id, found
	}
	return w.lastResort(space)
}

// grower returns the box that grew most since the disk had room; if none grew, a box that hides
// something.
func (w *watcher) grower() (id holdfast.BoxID, found bool) {
	most := int64(0)
	for box, g := range w.boxes {
		if w.grew(g) <= diskSlack && g.files() <= fileSlack {
			continue
		}
		if n := w.grew(g); n > most {
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

// lastResort returns the box that wrote most since the disk had room. It returns a box that is
// not known to have written only while the disk continues to fill up, or when half of the reserve
// is used up: then some box must be the cause.
func (w *watcher) lastResort(space DiskSpace) (id holdfast.BoxID, found bool) {
	half := Disk{Reserve: w.Reserve / 2}
	_, enough := half.short(space)
	need := !enough || w.low-space.Free > diskSlack
	most := int64(-1)
	for box, g := range w.boxes {
		if n := g.written(); n > most && (need || n > diskSlack) {
			id, most, found = box, n, true
		}
	}
	return id, found
}

// settle makes the current usage of each box the base of its growth, because the disk has room for it. It leaves out
// boxes that exceed their limit or have too many files.
func (w *watcher) settle(s DiskSpace) {
	room, bounded := w.roomForFiles(s)
	for id, g := range w.boxes {
		if (g.limit <= 0 || w.cost(g.charged()) <= g.limit) && (!bounded || g.now.Files <= room) {
			w.crowded.remove(id)
			g.base = g.charged()
		}
	}
}

// stop ends a box even if it is in use. over is how many bytes the box took too much. If the box
// cannot be stopped, the next measurement finds it again.
func (w *watcher) stop(ctx context.Context, id holdfast.BoxID, reason string, over int64) {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	err := w.runners.end(ctx, id, holdfast.BoxEnded{Reason: reason, OvershootBytes: over})
	if err == nil || errors.Is(err, context.Canceled) {
		delete(w.boxes, id)
	}
}
