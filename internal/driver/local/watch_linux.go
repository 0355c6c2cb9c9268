package local

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// maxWatches is how many directories are watched for all boxes together: the kernel limits the watches of a user.
const maxWatches = 4096

// watchFor are the inotify events of a directory after which a wall may be gone.
const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// watcher watches the host's names of files that have walls: a rename over such a name removes the
// wall's mount from every box. The zero value is ready; its goroutine starts with the first wall.
type watcher struct {
	mu sync.Mutex
	// file is the inotify instance; nil until a box has walls.
	file   *os.File
	done   chan struct{}
	closed bool
	boxes  map[holdfast.BoxID]*guarded
	// dirs holds the watched names: by the watch descriptor of their directory, and then by box.
	dirs map[int32]map[holdfast.BoxID]map[string]bool
}

// guarded is a running box with walls.
type guarded struct {
	record wallRecord
	pid    int
	start  uint64
	// broken is true while a wall may be missing.
	broken bool
}

// WallsHold implements sandbox.Guard.
func (d *Driver) WallsHold(box holdfast.BoxID) bool {
	d.watch.mu.Lock()
	defer d.watch.mu.Unlock()
	g := d.watch.boxes[box]
	return g == nil || !g.broken
}

// guard starts to watch the walls of a running box. By the inodes of the walls it also finds
// changes that happened while no server watched. lack is the reason if a directory is not
// watched, for example because the machine has no watches left; the walls are in force even then.
func (d *Driver) guard(r boxproc.Record) (lack string) {
	w, ok := wallsOf(r)
	if !ok {
		return ""
	}
	d.watch.mu.Lock()
	if old := d.watch.boxes[r.Box]; old != nil && old.pid == r.PID && old.start == r.Start {
		d.watch.mu.Unlock()
		return ""
	}
	g := &guarded{record: w, pid: r.PID, start: r.Start}
	err := d.watch.add(r.Box, g, d.noticed)
	d.watch.mu.Unlock()
	if noWatch(err) {
		lack, err = "wall-watch: a rename on the host over a path with a wall would go unnoticed: "+err.Error(), nil
	}
	if err != nil || !w.standing() {
		d.mend(r.Box, g)
	}
	return lack
}

// errWatches is the error that this server's own limit of watches is reached.
var errWatches = errors.New("the server watches the maximum number of directories for path rules already")

// noWatch reports whether an error means a lack of watches, and not a failure with the directory.
func noWatch(err error) bool {
	return errors.Is(err, errWatches) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// add watches the directories of a box's walls; w.mu is held. If it returns an error that is not
// a lack of watches, a wall may be missing.
func (w *watcher) add(box holdfast.BoxID, g *guarded, noticed func(holdfast.BoxID)) error {
	if w.closed {
		return nil
	}
	if w.boxes == nil {
		w.boxes, w.dirs = map[holdfast.BoxID]*guarded{}, map[int32]map[holdfast.BoxID]map[string]bool{}
	}
	w.drop(box)
	w.boxes[box] = g
	if w.file == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return err
		}
		w.file, w.done = os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
		go w.read(w.file, w.done, noticed)
	}
	for _, wall := range g.record.Built {
		if err := w.name(box, &g.record, wall.Path); err != nil {
			g.broken = !noWatch(err)
			return err
		}
	}
	return nil
}

// name watches the host's name for the path p, at which a box has a wall.
func (w *watcher) name(box holdfast.BoxID, r *wallRecord, p string) error {
	if !r.inside(p) {
		return nil // p is the workspace or home itself: its mount stays when its name on the host changes
	}
	dir, err := r.parent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if len(w.dirs) >= maxWatches {
		return errWatches
	}
	wd, err := inotifyAdd(w.file, dir)
	if err != nil {
		return err
	}
	if w.dirs[wd] == nil {
		w.dirs[wd] = map[holdfast.BoxID]map[string]bool{}
	}
	if w.dirs[wd][box] == nil {
		w.dirs[wd][box] = map[string]bool{}
	}
	w.dirs[wd][box][path.Base(p)] = true
	return nil
}

func inotifyAdd(f *os.File, dir int) (int32, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var wd int
	var aerr error
	err = c.Control(func(fd uintptr) {
		wd, aerr = unix.InotifyAddWatch(int(fd), procFD(dir), watchFor&^unix.IN_DONT_FOLLOW)
	})
	return int32(wd), errors.Join(err, aerr)
}

func (w *watcher) forget(box holdfast.BoxID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(box)
	delete(w.boxes, box)
}

func (w *watcher) drop(box holdfast.BoxID) {
	for wd, boxes := range w.dirs {
		if boxes[box] == nil {
			continue
		}
		delete(boxes, box)
		if len(boxes) == 0 {
			delete(w.dirs, wd)
			if c, err := w.file.SyscallConn(); err == nil {
				// The kernel may have removed the watch with its directory.
				_ = c.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
			}
		}
	}
}

func (w *watcher) close() error {
	w.mu.Lock()
	f, done := w.file, w.done
	w.closed, w.file = true, nil
	w.boxes, w.dirs = nil, nil
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	err := f.Close()
	<-done
	return err
}

// read calls noticed for each box whose watched names have changed.
func (w *watcher) read(f *os.File, done chan struct{}, noticed func(holdfast.BoxID)) {
	defer close(done)
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		for _, box := range w.concerned(buf[:n]) {
			noticed(box)
		}
	}
}

// concerned returns the boxes whose walls the events affect; all boxes after an overflow of the queue.
func (w *watcher) concerned(events []byte) []holdfast.BoxID {
	w.mu.Lock()
	defer w.mu.Unlock()
	hit := map[holdfast.BoxID]bool{}
	for len(events) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		size := int(binary.NativeEndian.Uint32(events[12:]))
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		events = events[unix.SizeofInotifyEvent+size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			for box := range w.boxes {
				hit[box] = true
			}
			continue
		}
		for box, names := range w.dirs[wd] {
			if names[name] || mask&unix.IN_IGNORED != 0 {
				hit[box] = true
			}
		}
	}
	var out []holdfast.BoxID
	for box := range hit {
		if g := w.boxes[box]; g != nil {
			g.broken = true
			out = append(out, box)
		}
	}
	return out
}

// noticed restores the walls of a box after an event.
func (d *Driver) noticed(box holdfast.BoxID) {
	d.watch.mu.Lock()
	g := d.watch.boxes[box]
	d.watch.mu.Unlock()
	if g != nil {
		d.mend(box, g)
	}
}

// mend restores the walls of a running box. Only a root server can do that; in an ordinary user's
// box they stay broken until the box is restarted.
//
// Directories may have been replaced, and their watches with them. A change that happens before
// the new directories are watched makes the first try fail, but sends no event: so mend tries a
// second time, with the new watches in place.
func (d *Driver) mend(box holdfast.BoxID, g *guarded) {
	for range 2 {
		broken := true
		if d.root {
			tool := int(g.record.Tool)
			broken = inMountNamespace(g.pid, g.start, func() error { return jail.Mend(g.record.Built, tool) }) != nil
		}
		if !d.mended(box, g, broken) {
			return
		}
	}
}

// mended records whether a wall is still missing after an attempt to restore the walls, and
// watches their names again. It returns true if the caller should try once more.
func (d *Driver) mended(box holdfast.BoxID, g *guarded, broken bool) (again bool) {
	d.watch.mu.Lock()
	defer d.watch.mu.Unlock()
	if d.watch.boxes[box] != g || d.watch.closed {
		return false
	}
	g.broken = broken
	if broken && !d.root {
		return false
	}
	for _, wall := range g.record.Built {
		if err := d.watch.name(box, &g.record, wall.Path); err != nil && !noWatch(err) {
			g.broken = true
		}
	}
	return g.broken
}

// standing reports whether each name that has a wall still leads to the file on which the wall was built.
func (w *wallRecord) standing() bool {
	for _, b := range w.Built {
		if !w.inside(b.Path) || b.Ino == 0 {
			continue
		}
		dir, err := w.parent(b.Path)
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Fstatat(dir, path.Base(b.Path), &st, unix.AT_SYMLINK_NOFOLLOW)
		unix.Close(dir)
		if err != nil || st.Ino != b.Ino {
			return false
		}
	}
	return true
}
