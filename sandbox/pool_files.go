package sandbox

import (
	"time"

	"github.com/holdfast-run/holdfast"
)

const (
	// fastest is how many files in a second the processes of boxes make at the most.
	fastest = 200_000
	// quickest and slowest are how soon the disk is looked at again for its files.
	quickest = 20 * time.Millisecond
	slowest  = time.Hour
)

// perFile is what a file counts beside its content: the part of the disk that comes with
// an inode. Else a limit in bytes would leave one box more files than the disk can hold.
// File systems without a number of files give the least.
func (s DiskSpace) perFile() int64 {
	if s.Files <= 0 {
		return fileCost
	}
	return max(s.Bytes/s.Files, fileCost)
}

// cost is what a box takes in all, and grew what of it is new.
func (w *watcher) cost(u DiskUsage) int64 { return u.Bytes + u.Files*w.perFile }
func (w *watcher) grew(g *growth) int64   { return w.cost(g.charged()) - w.cost(g.base) }

// roomForFiles is how many files the disk takes until its reserve of them is reached.
// Nothing is bounded where there is no reserve, or no number of files.
func (w *watcher) roomForFiles(s DiskSpace) (room int64, bounded bool) {
	if w.Reserve <= 0 || s.Files <= 0 {
		return 0, false
	}
	return max(s.FreeFiles-int64(w.Reserve*float64(s.Files)), 0), true
}

// crowding is a box that has more files than there is room for and made some of them
// now, and how many too many. So no box gets more than half of what there was, however
// often it comes back, and the reserve is left to others.
func (w *watcher) crowding(s DiskSpace) (id holdfast.BoxID, over int64) {
	room, bounded := w.roomForFiles(s)
	if !bounded {
		return "", 0
	}
	for box, g := range w.boxes {
		if o := g.now.Files - room; o > over && g.files() > min(fileSlack, room/16) {
			id, over = box, o
		}
	}
	return id, over
}

// crowded is a box that was stopped for its number of files: how often in a row, and
// until when it does not start. Each of its lives may take some files before it is
// looked at, so lives have to be rare.
type crowded struct {
	times int
	until time.Time
}

// longestWait is how long a box waits at the most that is stopped for its files again
// and again.
const longestWait = 10 * time.Minute

// crowds makes a box wait before it starts again, each time twice as long.
func (p *Pool) crowds(id holdfast.BoxID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.crowded[id]
	wait := min(time.Second<<min(c.times, 20), longestWait)
	if p.crowded == nil {
		p.crowded = map[holdfast.BoxID]crowded{}
	}
	for old, o := range p.crowded {
		if time.Since(o.until) > longestWait {
			delete(p.crowded, old)
		}
	}
	p.crowded[id] = crowded{c.times + 1, time.Now().Add(wait)}
}

// uncrowds forgets that: the box has no more files than there is room for.
func (p *Pool) uncrowds(id holdfast.BoxID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.crowded, id)
}

// waits refuses the start of a box that was stopped for its files a moment ago.
func (p *Pool) waits(id holdfast.BoxID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.crowded[id].until)
	if left <= 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "box %s was stopped because it has more files than the disk has room for; it starts again in %s",
		holdfast.Quote(string(id)), (left + time.Second - 1).Truncate(time.Second)).
		WithHint("then let it remove files first; or remove other sessions")
}

// fileStep is the smallest number of new files that trees are walked for.
func (w *watcher) fileStep(s DiskSpace) int64 {
	step := w.step() / w.perFile
	if room, bounded := w.roomForFiles(s); bounded {
		step = min(step, room/8)
	}
	return max(step, fileSlack/4)
}

// pace is when to look again at the latest: before the fastest box could take half of
// the room for files. Below the reserve the usual pace is enough.
func (w *watcher) pace(s DiskSpace) time.Duration {
	room, bounded := w.roomForFiles(s)
	if !bounded || room == 0 || room > 1<<30 {
		return slowest
	}
	for _, g := range w.boxes {
		if g.now.Files > room {
			return quickest
		}
	}
	return max(time.Duration(room)*time.Second/(2*fastest), quickest)
}
