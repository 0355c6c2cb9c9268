package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
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
	// Hostile: boxes may know ways to take room that nothing measures. When none
	// grew and the reserve is used up, one that wrote is stopped, and any while the
	// disk goes on to fill up or has less than half of the reserve.
	Hostile bool
	// Limit bounds the disk space of one box's trees, with each file counted as the part
	// of the disk that comes with an inode; 0 is no limit. A box that is over its limit
	// when it starts is stopped only when it grows further: only a running box can be
	// tidied up.
	Limit int64
	// Space measures the disk. It is called at each look and each start of a box,
	// side by side.
	Space func() (DiskSpace, error)
	// Usage measures the trees of a box. It is called when the box starts and when
	// the disk filled up noticeably since; with it the driver is asked for what the
	// box' processes hold.
	Usage func(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error)
}

// DiskSpace is what a file system has in all and free, in bytes and in files.
type DiskSpace struct{ Bytes, Free, Files, FreeFiles int64 }

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
	// fileCost is the minimum that a file counts in addition to its content.
	fileCost = 512
)

// growth is what the watcher knows of a running box.
type growth struct {
	boot string
	// base is what it took when it was measured first, or last while there was
	// room; now is the last measure.
	base, now sandbox.DiskUsage
	// dark is what it may have taken where nobody can look: all that the disk lost
	// while it hid something and no measure explains.
	dark int64
}

// charged is what counts against the box.
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
	// dark is that of boxes which hid something when they were last measured: ending
	// a box uncovers nothing.
	dark   map[holdfast.BoxID]int64
	walked time.Time
	// left is what was free when the trees were last walked; free and files are the
	// most since.
	left, free, files int64
	// low is what was free when the reserve turned out to be used up, or at the last
	// stop since; negative while there is room.
	low int64
	// perFile is what a file counts in addition to its content on this disk, in bytes.
	perFile int64
}

// short says how much is missing to the reserve; ok when nothing is.
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

// percent is the smaller share.
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
		return slowest, true // if a disk cannot be measured, the next box is refused; see room
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

// filled reports whether so much was taken that trees are walked.
func (w *watcher) filled(s DiskSpace) bool {
	return w.free-s.Free >= w.step() || w.files-s.FreeFiles >= w.fileStep(s)
}

// step is the smallest change of the disk that trees are walked for.
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

// measureAll measures new lives, with all the others too. What the disk lost since
// they were, and none of them shows, is charged to those that hide something.
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

// measure asks for what a box holds, then walks its trees: a file that loses its
// name in between is not counted twice.
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

// unmeasured: what went away took no room along, anything else is unknown.
func unmeasured(err error) bool { return err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) }

// overLimit is a box over its limit that grew, and by how much it is over.
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

// suspect is the box to stop below the reserve: the one that grew most, else one
// that hides something, else, of hostile ones, what the last resort names.
func (w *watcher) suspect(space DiskSpace) (holdfast.BoxID, bool) {
	if id, found := w.grower(); found || !w.Hostile {
		return id, found
	}
	return w.lastResort(space)
}

// grower is the box that took most since there was room; when none did, one that
// hides what it took.
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

// lastResort is the box that wrote most since there was room. One that is not
// known to have written is named only in need: room has no other explanation left.
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

// settle takes what there is, with room left, as what may be.
func (w *watcher) settle(s DiskSpace) {
	room, bounded := w.roomForFiles(s)
	for id, g := range w.boxes {
		if (w.Limit <= 0 || w.cost(g.charged()) <= w.Limit) && (!bounded || g.now.Files <= room) {
			w.crowded.remove(id)
			g.base = g.charged()
		}
	}
}

// stop ends a box, whatever it does, and says why and how much too late. A
// failure shows at the next look.
func (w *watcher) stop(ctx context.Context, id holdfast.BoxID, reason string, over int64) {
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	err := w.runners.end(ctx, id, holdfast.BoxEnded{Reason: reason, OvershootBytes: over})
	if err == nil || errors.Is(err, context.Canceled) {
		delete(w.boxes, id)
	}
}
