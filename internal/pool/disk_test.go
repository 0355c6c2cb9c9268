package pool_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

const gib = 1 << 30

// perFile is what a file on newDisk counts: the size of the disk divided by its number
// of files.
const perFile = 100 * gib / 1_000_000

// disk is a disk of 100 GiB and a million files that reports the figures a test sets.
type disk struct {
	mu           sync.Mutex
	space        pool.DiskSpace
	used, held   map[holdfast.BoxID]sandbox.DiskUsage
	looks, walks int
	broken       error
}

func newDisk() *disk {
	return &disk{
		space: pool.DiskSpace{Bytes: 100 * gib, Free: 50 * gib, Files: 1_000_000, FreeFiles: 900_000},
		used:  map[holdfast.BoxID]sandbox.DiskUsage{}, held: map[holdfast.BoxID]sandbox.DiskUsage{},
	}
}

// write adds bytes and files to those that a box takes.
func (d *disk) write(box string, bytes, files int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.used[holdfast.BoxID("w-"+box)]
	u.Bytes, u.Files = u.Bytes+bytes, u.Files+files
	d.used[holdfast.BoxID("w-"+box)] = u
	d.space.Free -= bytes
	d.space.FreeFiles -= files
}

// hold adds to the bytes that the processes of a box hold in deleted files.
func (d *disk) hold(box string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[holdfast.BoxID("w-"+box)] = sandbox.DiskUsage{Bytes: bytes, Files: 1, Written: bytes}
	d.space.Free -= bytes
}

// wrote sets how many bytes a box has written; its usage stays the same.
func (d *disk) wrote(box string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[holdfast.BoxID("w-"+box)] = sandbox.DiskUsage{Written: bytes}
	d.space.Free -= bytes
}

func (d *disk) hide(box string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[holdfast.BoxID("w-"+box)] = sandbox.DiskUsage{Hidden: true}
}

func (d *disk) counts() (looks, walks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.looks, d.walks
}

func (d *disk) watch(c *pool.Config) {
	c.Disk = &pool.Disk{
		Reserve: 0.05, Limit: 10 * gib,
		Space: func() (pool.DiskSpace, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.looks++
			return d.space, d.broken
		},
		Usage: func(_ context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.walks++
			return d.used[box], nil
		},
	}
}

// watched is a rig over that disk.
func (d *disk) watched(t *testing.T, change func(*pool.Disk)) *rig {
	r := newRig(t, func(c *pool.Config) { d.watch(c); change(c.Disk) })
	r.held = func(box holdfast.BoxID) sandbox.DiskUsage {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.held[box]
	}
	return r
}

func (r *rig) stopped() []holdfast.BoxEnded {
	var out []holdfast.BoxEnded
	for _, ev := range r.events() {
		if ev.Type == holdfast.EventBoxStopped {
			out = append(out, ev.Ended)
		}
	}
	return out
}

// ASH-27: a box over its limit is stopped, and the event says how far it was over. When it
// starts again it may run, and is stopped only when it grows further.
func TestASH27_DiskLimitStopsTheBox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		r.use("innocent")
		r.get("filler")
		pass(time.Second)
		d.write("filler", 9*gib, 10)
		pass(2900 * time.Millisecond)
		r.equal("events below the limit", r.told(), "started started")
		d.write("filler", 3*gib, 0)
		pass(2900 * time.Millisecond)
		all := r.stopped()
		if len(all) != 1 || all[0].Box != "w-filler" || !strings.HasPrefix(all[0].Reason, "disk: ") || all[0].OvershootBytes != 2*gib+10*perFile {
			t.Fatalf("stopped: %+v", all)
		}
		if !r.running("innocent") {
			t.Error("the other box was stopped")
		}
		r.use("filler")
		pass(time.Hour)
		if n := len(r.stopped()); n != 1 {
			t.Fatalf("a box that was started too full and stays so was stopped: %d", n)
		}
		d.write("filler", 64<<20, 0)
		pass(2 * time.Minute)
		if n := len(r.stopped()); n != 2 {
			t.Fatalf("%d stops after it grew again", n)
		}
	})
}

// A box may have a lower limit of its own, which may change while it runs; a higher one does not count.
//
// WS-R27.
func TestDiskLimitOfOneBox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		own := map[holdfast.BoxID]int64{"w-small": 3 * gib, "w-large": 99 * gib}
		r := d.watched(t, func(c *pool.Disk) {
			c.LimitOf = func(_ context.Context, box holdfast.BoxID) int64 {
				d.mu.Lock()
				defer d.mu.Unlock()
				return own[box]
			}
		})
		for _, name := range []string{"small", "large", "other"} {
			r.get(name)
		}
		pass(time.Second)
		for _, name := range []string{"small", "large", "other"} {
			d.write(name, 4*gib, 0)
		}
		pass(2900 * time.Millisecond)
		if all := r.stopped(); len(all) != 1 || all[0].Box != "w-small" || all[0].OvershootBytes != gib {
			t.Fatalf("stopped: %+v", all)
		}
		d.write("large", 7*gib, 0)
		pass(2900 * time.Millisecond)
		if all := r.stopped(); len(all) != 2 || all[1].Box != "w-large" || all[1].OvershootBytes != gib {
			t.Fatalf("stopped: %+v", all)
		}
		d.mu.Lock()
		own["w-other"] = 2 * gib
		d.mu.Unlock()
		pass(2 * time.Minute)
		d.write("other", 64<<20, 0)
		pass(2 * time.Minute)
		if all := r.stopped(); len(all) != 3 || all[2].Box != "w-other" {
			t.Fatalf("stopped after its limit sank: %+v", all)
		}
	})
}

// ASH-27: below the reserve the box that grew most is stopped, then the next, and
// no box starts until there is room again.
func TestASH27_DiskReserve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		for _, name := range []string{"big", "filler", "slow"} {
			if name == "big" {
				d.write(name, 8*gib, 0) // much, but long ago
			}
			r.get(name)
		}
		pass(time.Second)
		d.write("slow", 2*gib, 0)
		d.write("filler", 5*gib, 0)
		d.write("elsewhere", 31*gib, 0)
		pass(2900 * time.Millisecond)
		all := r.stopped()
		if len(all) != 1 || all[0].Box != "w-filler" || all[0].OvershootBytes != gib {
			t.Fatalf("stopped: %+v", all)
		}
		_, err := r.p.Acquire(context.Background(), r.spec("new"), false, nil)
		r.kind(err, holdfast.KindUnavailable)
		if !strings.Contains(err.Error(), "4.0 %") || !strings.Contains(holdfast.HintOf(err), "disk_reserve") {
			t.Errorf("%v (hint: %s)", err, holdfast.HintOf(err))
		}
		// A running box stays in use.
		r.use("big")
		pass(time.Hour)
		if all = r.stopped(); len(all) != 2 || all[1].Box != "w-slow" {
			t.Fatalf("stopped after an hour: %+v", all)
		}
		if !r.running("big") {
			t.Error("a box that did not grow was stopped")
		}
		d.write("elsewhere", -20*gib, 0)
		r.use("filler")
		pass(time.Second)
		d.write("filler", 0, 880_000)
		pass(2900 * time.Millisecond)
		if all = r.stopped(); len(all) != 3 || all[2].Box != "w-filler" {
			t.Fatalf("files used up, stopped: %+v", all)
		}
	})
}

// A box that cannot be measured in full is stopped first when no other box grew. While the disk
// cannot be measured no box starts.
func TestDiskFailsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		r.get("open")
		r.get("hidden")
		pass(time.Second)
		d.hide("hidden")
		d.write("elsewhere", 46*gib, 0)
		pass(2900 * time.Millisecond)
		if all := r.stopped(); len(all) != 1 || all[0].Box != "w-hidden" {
			t.Fatalf("stopped: %+v", all)
		}
		d.mu.Lock()
		d.broken = errors.New("statfs failed")
		d.mu.Unlock()
		_, err := r.p.Acquire(context.Background(), r.spec("new"), false, nil)
		r.kind(err, holdfast.KindUnavailable)
	})
}

// ASH-27: removed files that processes of a box still have open count against its limit, and as
// growth of the box when the reserve is used up.
func TestASH27_DiskCountsFilesWithoutAName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := d.watched(t, func(*pool.Disk) {})
		r.get("innocent")
		r.get("filler")
		pass(time.Second)
		d.write("innocent", gib, 0)
		d.hold("filler", 12*gib)
		pass(2900 * time.Millisecond)
		all := r.stopped()
		if len(all) != 1 || all[0].Box != "w-filler" || all[0].OvershootBytes != 2*gib+perFile {
			t.Fatalf("stopped: %+v", all)
		}
		d.hold("filler", 0)
		r.get("filler")
		pass(2 * time.Minute)
		d.hold("filler", 9*gib)
		d.write("elsewhere", 24*gib, 0)
		pass(time.Minute)
		if all = r.stopped(); len(all) != 2 || all[1].Box != "w-filler" || !r.running("innocent") {
			t.Fatalf("below the reserve, stopped: %+v", all)
		}
	})
}

// ASH-27: empty files are noticed as soon as files with content.
func TestASH27_EmptyFilesAreNoticed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		r.get("filler")
		pass(time.Second)
		d.write("filler", 10*gib-1<<20, 0)
		pass(90 * time.Second)
		d.write("filler", 0, 800_000)
		pass(2900 * time.Millisecond)
		if all := r.stopped(); len(all) != 1 || all[0].OvershootBytes != 800_000*perFile-1<<20 {
			t.Fatalf("stopped: %+v", all)
		}
	})
}

// ASH-27: space that the disk lost and that no box is measured to have taken counts against the
// limit of a box that hides something, also after its next start. Space that others are
// measured to have taken does not.
func TestASH27_HiddenCountsAgainstTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := d.watched(t, func(*pool.Disk) {})
		r.get("open")
		r.get("filler")
		pass(time.Second)
		d.hide("filler")
		d.write("open", 9*gib, 0)
		d.write("elsewhere", 9*gib, 0)
		pass(2 * time.Minute)
		if all := r.stopped(); len(all) != 0 {
			t.Fatalf("stopped below its limit: %+v", all)
		}
		d.write("elsewhere", 2*gib, 0)
		pass(2900 * time.Millisecond)
		all := r.stopped()
		if len(all) != 1 || all[0].Box != "w-filler" || !strings.Contains(all[0].Reason, "hides") || all[0].OvershootBytes != gib {
			t.Fatalf("stopped: %+v", all)
		}
		r.get("filler")
		pass(2 * time.Minute)
		if n := len(r.stopped()); n != 1 {
			t.Fatalf("stopped %d times without having grown", n)
		}
		d.write("elsewhere", 100<<20, 0)
		pass(2900 * time.Millisecond)
		if n := len(r.stopped()); n != 2 {
			t.Fatalf("stopped %d times: its former life was forgotten", n)
		}
		d.mu.Lock()
		d.used["w-filler"] = sandbox.DiskUsage{}
		d.mu.Unlock()
		r.get("filler")
		d.write("elsewhere", 12*gib, 0)
		pass(2 * time.Minute)
		if n := len(r.stopped()); n != 2 || !r.running("open") {
			t.Fatalf("stopped %d times: it hides nothing any more", n)
		}
	})
}

// ASH-27: when the reserve is used up and no measurement shows which box took the space, the box
// that wrote most is stopped, and while the disk goes on to fill up any box, until the reserve
// is free again. Boxes that are not hostile stay.
func TestASH27_DiskLastResort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, hostile := range []bool{true, false} {
			d := newDisk()
			r := d.watched(t, func(c *pool.Disk) { c.Hostile = hostile })
			for _, name := range []string{"one", "two", "writer"} {
				r.get(name)
			}
			pass(time.Second)
			d.write("elsewhere", 44*gib, 0)
			d.wrote("writer", 2*gib)
			pass(time.Minute)
			want := 0
			if hostile {
				want = 1
			}
			if all := r.stopped(); len(all) != want || hostile && all[0].Box != "w-writer" {
				t.Fatalf("hostile %t, stopped: %+v", hostile, all)
			}
			d.write("elsewhere", 100<<20, 0)
			pass(time.Minute)
			if all := r.stopped(); len(all) != 2*want {
				t.Fatalf("hostile %t, it goes on to fill up, stopped: %+v", hostile, all)
			}
			d.write("elsewhere", 2*gib, 0)
			d.write("elsewhere", -6*gib, 0)
			pass(time.Minute)
			if all := r.stopped(); len(all) != 2*want {
				t.Fatalf("hostile %t, there is room again, stopped: %+v", hostile, all)
			}
			d.write("elsewhere", 8*gib, 0)
			pass(time.Minute)
			if all := r.stopped(); len(all) != 3*want {
				t.Fatalf("hostile %t, half of the reserve is gone, stopped: %+v", hostile, all)
			}
		}
	})
}

// A look at the disk costs one call while boxes run, boxes are rarely measured, and nothing is
// looked at when no box can grow.
func TestDiskIsLookedAtCheaply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, func(c *pool.Config) { d.watch(c); c.FreezeAfter = 10 * time.Minute })
		pass(time.Hour)
		if looks, _ := d.counts(); looks > 1 {
			t.Errorf("%d looks without a box", looks)
		}
		r.use("a")
		pass(5 * time.Minute)
		looks, walks := d.counts()
		if looks < 100 || looks > 160 || walks > 8 {
			t.Errorf("in five minutes %d looks and %d walks", looks, walks)
		}
		pass(10 * time.Minute) // it is frozen by now
		looks, _ = d.counts()
		pass(time.Hour)
		if now, _ := d.counts(); now != looks {
			t.Errorf("%d looks at a frozen box", now-looks)
		}
		r.use("a")
		pass(10 * time.Second)
		if now, _ := d.counts(); now == looks {
			t.Error("a thawed box is not looked at")
		}
	})
}
