package pool

import (
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

const (
	// fastest is an upper bound for the number of files that the processes of a box can make in a second.
	fastest = 200_000
	// quickest and slowest bound how long the watcher waits before it counts the disk's files again.
	quickest = 20 * time.Millisecond
	slowest  = time.Hour
)

// perFile returns how many bytes a file counts in addition to its content: the size of the disk divided
// by its number of inodes. Without it a limit in bytes would allow one box more files than the disk can
// hold. For a file system that reports no number of files it returns the minimum.
func (s DiskSpace) perFile() int64 {
	if s.Files <= 0 {
		return fileCost
	}
	return max(s.Bytes/s.Files, fileCost)
}

// cost returns the bytes that a disk usage counts, perFile for each file; grew returns the cost of a box's growth.
func (w *watcher) cost(u sandbox.DiskUsage) int64 { return u.Bytes + u.Files*w.perFile }
func (w *watcher) grew(g *growth) int64           { return w.cost(g.charged()) - w.cost(g.base) }

// roomForFiles returns how many more files fit on the disk until only the reserve is left.
// bounded is false if no reserve is set, or if the file system does not count its files.
func (w *watcher) roomForFiles(s DiskSpace) (room int64, bounded bool) {
	if w.Reserve <= 0 || s.Files <= 0 {
		return 0, false
	}
	return max(s.FreeFiles-int64(w.Reserve*float64(s.Files)), 0), true
}

// crowding returns the box whose number of files exceeds the number that still fits on the disk by most, and by how
// many. It considers only boxes that recently made files. So no box gets more than half of the room for files, however
// often it is started, and the rest is left to others.
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

// crowds records the boxes that were stopped because of their number of files. Each start of such
// a box may make some files before it is measured, so it must not start often. Safe for
// concurrent use; the zero value is ready.
type crowds struct {
	mu sync.Mutex
	by map[holdfast.BoxID]crowd
}

// crowd records how many times in a row a box was stopped because of its files, and until when it
// must not start.
type crowd struct {
	times int
	until time.Time
}

// longestWait is how long, at most, a box must wait that is stopped because of its files again
// and again.
const longestWait = 10 * time.Minute

// add makes a box wait before it may start again: twice as long each time, but at most longestWait.
func (c *crowds) add(id holdfast.BoxID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[holdfast.BoxID]crowd{}
	}
	times := c.by[id].times
	for old, o := range c.by {
		if time.Since(o.until) > longestWait {
			delete(c.by, old)
		}
	}
	wait := min(time.Second<<min(times, 20), longestWait)
	c.by[id] = crowd{times + 1, time.Now().Add(wait)}
}

// remove ends the wait of a box, because the disk has room for its files.
func (c *crowds) remove(id holdfast.BoxID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, id)
}

// refuses returns an error while a box that was stopped because of its files must not start.
func (c *crowds) refuses(id holdfast.BoxID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := time.Until(c.by[id].until)
	if left <= 0 {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "pool.disk", "box %s was stopped because it has more files than the disk has room for; it may start again in %s",
		holdfast.Quote(string(id)), (left + time.Second - 1).Truncate(time.Second)).
		WithHint("remove files in the box as soon as it has started, or remove other sessions")
}

// fileStep returns after how many new files on the disk the directories of all boxes are walked again.
func (w *watcher) fileStep(s DiskSpace) int64 {
	step := w.step() / w.perFile
	if room, bounded := w.roomForFiles(s); bounded {
		step = min(step, room/8)
	}
	return max(step, fileSlack/4)
}

// pace returns how long the watcher may wait before it counts files again: the time in which the fastest box fills half
// of the room for files, but at least quickest; quickest if a box has too many files. slowest means no limit.
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
