package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Disk keeps boxes from filling the server's disk. The kernel enforces no such limit, so the
// pool measures the disk again and again; a box may go over its limit by what it writes between
// two looks.
type Disk struct {
	// Every is how often the disk is looked at while a box runs; 0 is every 2 seconds.
	Every time.Duration
	// Reserve is the part of the disk that stays free, between 0 and 1; 0 is none. When less
	// is free no box starts, and at each look the running box that grew most is stopped,
	// until none grows.
	Reserve float64
	// Hostile: boxes may take space in ways that cannot be measured. When the reserve is used
	// up and no box is known to have grown, one that wrote is stopped; while the disk goes on
	// to fill up, or less than half of the reserve is free, any box is.
	Hostile bool
	// Limit is how much disk space the directories of one box may take; each file counts, in
	// addition to its content, the bytes of the disk that there are for each inode. 0 is no
	// limit. A box that is over its limit when it starts is stopped only when it grows further:
	// files can be removed only in a box that runs.
	Limit int64
	// Space measures the disk. It is called at each look and at each start of a box,
	// concurrently.
	Space func() (DiskSpace, error)
	// Usage measures the directories of a box. It is called when the box starts and when the
	// disk filled up noticeably since. Files that only processes still hold are measured by
	// the driver: see sandbox.Holder.
	Usage func(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error)
}

// DiskSpace is the size of a file system and how much of it is free, in bytes and in files.
type DiskSpace struct{ Bytes, Free, Files, FreeFiles int64 }

const (
	diskEvery = 2 * time.Second
	// diskStep is how many bytes the disk fills up before the boxes are measured again;
	// diskAge is the time after which they are in any case.
	diskStep = 64 << 20
	diskAge  = time.Minute
	// diskSlack and fileSlack are how many bytes and files a box may add and still count as
	// one that did not grow.
	diskSlack = 1 << 20
	fileSlack = 1 << 10
	// fileCost is the minimum of bytes that a file counts in addition to its content.
	fileCost = 512
)

// growth is how a running box has grown.
type growth struct {
	boot string
	// base is the box's usage when it was first measured, or when it was last measured while
	// the disk had room; now is the last measurement.
	base, now sandbox.DiskUsage
	// dark is how many bytes it may have taken in places that cannot be measured: what the
	// disk lost while the box hid something, beyond what is measured.
	dark int64
}

// charged returns the usage that counts against the box.
func (g *growth) charged() sandbox.DiskUsage {
	u := g.now
	u.Bytes += g.dark
	return u
}

func (g *growth) files() int64   { return g.now.Files - g.base.Files }
func (g *growth) written() int64 { return max(g.now.Written-g.base.Written, 0) }

// runners are the boxes that the watcher looks at.
type runners interface {
	// running returns the running boxes; those that are frozen cannot grow.
	running() map[holdfast.BoxID]runner
	// end stops a box at once.
	end(ctx context.Context, id holdfast.BoxID, ended holdfast.BoxEnded) error
}

// runner is a running box: the id of its start, and whether it is frozen.
type runner struct {
	boot   string
	frozen bool
}

// watcher looks at the disk, and stops boxes that take too much of it. refuses and grows are
// safe for concurrent use; all else belongs to the goroutine that runs watch.
type watcher struct {
	// Disk is nil if the disk is not watched.
	*Disk
	// holder is nil if the driver cannot look at what processes hold open.
	holder  sandbox.Holder
	crowded crowds
	// grown has something when a box began to run.
	grown chan struct{}

	runners runners
	boxes   map[holdfast.BoxID]*growth
	// dark is growth.dark of boxes that hid something when they were last measured. It outlives
	// the box: hidden space stays taken when the box ends.
	dark   map[holdfast.BoxID]int64
	walked time.Time
	// left is how much was free when all boxes were last measured, at walked; free and files
	// are the most that was free since.
	left, free, files int64
	// low is how much was free when the reserve was found used up, or at the last stop of a
	// box since; negative while there is room.
	low int64
	// perFile is what a file counts in addition to its content on this disk, in bytes.
	perFile int64
}

// short returns how many bytes are missing to the reserve; ok if no bytes or files are.
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

// refuses returns an error if a box may not start: the disk is below its reserve, or the box
// was stopped a moment ago because of its files.
func (w *watcher) refuses(id holdfast.BoxID) error {
	if w.Disk == nil {
		return nil
	}
	if err := w.room(); err != nil {
		return err
	}
	return w.crowded.refuses(id)
}

// grows notes that a box began to run, so that it is looked at soon.
func (w *watcher) grows() {
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// room refuses another box while the disk is below its reserve.
func (d *Disk) room() error {
	if d.Reserve <= 0 {
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

// percent returns the smaller of two shares, of bytes and of files, in percent.
func percent(bytes, all, files, allFiles int64) string {
	share := float64(bytes) / float64(max(all, 1))
	if allFiles > 0 {
		share = min(share, float64(files)/float64(allFiles))
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// watch looks at the disk while boxes run, and at once when one started, until ctx ends.
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

// look measures the boxes that are due and stops at most one. It returns whether any
// box could still grow, and when to look again at the latest.
func (w *watcher) look(ctx context.Context) (next time.Duration, any bool) {
	running := w.growing()
	if len(running) == 0 {
		w.walked = time.Time{}
		return 0, false
	}
	space, err := w.Space()
	if err != nil {
		return slowest, true // room refuses the next box while the disk cannot be measured
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

// filled reports whether the disk filled up so much that all boxes are measured.
func (w *watcher) filled(s DiskSpace) bool {
	return w.free-s.Free >= w.step() || w.files-s.FreeFiles >= w.fileStep(s)
}

// step is the smallest change of the disk, in bytes, after which all boxes are measured.
func (w *watcher) step() int64 {
	if w.Limit > 0 {
		return min(diskStep, max(w.Limit/8, fileCost))
	}
	return diskStep
}

// growing returns the boxes that can grow, with the ids of their starts. What the watcher knew
// of boxes that do not run is forgotten.
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

// measureAll measures the boxes that started since the last look, or with all every box. What
// the disk lost since all were measured, and no measurement explains, is charged to the boxes
// that hide something.
func (w *watcher) measureAll(ctx context.Context, running map[holdfast.BoxID]string, all bool, space DiskSpace) {
	dark := w.left - space.Free
	hiding := map[holdfast.BoxID]*growth{}
	for id, boot := range running {
		g := w.boxes[id]
		if g == nil || g.boot != boot {
			g = &growth{boot: boot, now: w.measure(ctx, id), dark: w.dark[id]}
			g.base = g.charged()
			w.boxes[id] = g
			continue
		}
		if !all {
			continue
		}
		u := w.measure(ctx, id)
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

// measure returns the usage of a box. It measures the deleted files that processes hold before
// it walks the directories: a file that is deleted in between is not counted twice.
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

// unmeasured reports whether an error means that there may be more than was measured: not if
// the box is gone.
func unmeasured(err error) bool { return err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) }

// overLimit returns the box that grew and is furthest over its limit, and by how much it is.
func (w *watcher) overLimit() (id holdfast.BoxID, over int64) {
	if w.Limit <= 0 {
		return "", 0
	}
	for box, g := range w.boxes {
		if o := w.cost(g.charged()) - w.Limit; o > over && w.grew(g) > diskSlack {
			id, over = box, o
		}
	}
	return id, over
}

func (w *watcher) overReason(id holdfast.BoxID) string {
	if g := w.boxes[id]; w.cost(g.now) <= w.Limit {
		return "disk: the box hides files, and may be over its limit"
	}
	return "disk: over the limit of the box"
}

// suspect returns the box to stop when the reserve is used up: see grower, and for hostile boxes
// lastResort.
func (w *watcher) suspect(space DiskSpace) (holdfast.BoxID, bool) {
	if id, found := w.grower(); found || !w.Hostile {
		return id, found
	}
	return w.lastResort(space)
}

// grower returns the box that grew most since there was room; if none grew, one that hides
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

// lastResort returns the box that wrote most since there was room. A box that is not known to
// have written is returned only while the disk goes on to fill up, or when half of the reserve
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

// settle makes the present usage of boxes the base that their growth is counted from: there is
// room for it.
func (w *watcher) settle(s DiskSpace) {
	room, bounded := w.roomForFiles(s)
	for id, g := range w.boxes {
		if (w.Limit <= 0 || w.cost(g.charged()) <= w.Limit) && (!bounded || g.now.Files <= room) {
			w.crowded.remove(id)
			g.base = g.charged()
		}
	}
}

// stop ends a box even if it is in use. over is how many bytes it took too much. If it cannot
// be stopped, the next look finds it again.
func (w *watcher) stop(ctx context.Context, id holdfast.BoxID, reason string, over int64) {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	err := w.runners.end(ctx, id, holdfast.BoxEnded{Reason: reason, OvershootBytes: over})
	if err == nil || errors.Is(err, context.Canceled) {
		delete(w.boxes, id)
	}
}
