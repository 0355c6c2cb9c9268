package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

const gib = 1 << 30

// disk is a disk of 100 GiB and 1000 files that says what the test wants.
type disk struct {
	mu           sync.Mutex
	space        sandbox.DiskSpace
	used         map[holdfast.BoxID]sandbox.DiskUsage
	looks, walks int
	broken       error
}

func newDisk() *disk {
	return &disk{
		space: sandbox.DiskSpace{Bytes: 100 * gib, Free: 50 * gib, Files: 1_000_000, FreeFiles: 900_000},
		used:  map[holdfast.BoxID]sandbox.DiskUsage{},
	}
}

// write lets a box take so much more.
func (d *disk) write(box string, bytes, files int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.used[holdfast.BoxID("w-"+box)]
	u.Bytes, u.Files = u.Bytes+bytes, u.Files+files
	d.used[holdfast.BoxID("w-"+box)] = u
	d.space.Free -= bytes
	d.space.FreeFiles -= files
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

func (d *disk) watch(c *sandbox.PoolConfig) {
	c.Disk = &sandbox.Disk{
		Reserve: 0.05, Limit: 10 * gib,
		Space: func() (sandbox.DiskSpace, error) {
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

func (r *rig) stopped() []holdfast.BoxEnded {
	var out []holdfast.BoxEnded
	for _, ev := range r.events() {
		if ev.Type == holdfast.EventBoxStopped {
			out = append(out, ev.Ended)
		}
	}
	return out
}

// ASH-27: a box over its limit is stopped, with what it took too much; the next
// one of the session may run, and is stopped only when it grows further.
func TestASH27_DiskLimitStopsTheBox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		r.use("innocent")
		r.get("filler")
		pass(time.Second)
		d.write("filler", 9*gib, 10)
		pass(3 * time.Second)
		r.equal("events below the limit", r.told(), "started started")
		d.write("filler", 3*gib, 0)
		pass(3 * time.Second)
		all := r.stopped()
		if len(all) != 1 || all[0].Box != "w-filler" || !strings.HasPrefix(all[0].Reason, "disk: ") || all[0].OvershootBytes != 2*gib+10*512 {
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
		pass(3 * time.Second)
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
		pass(3 * time.Second)
		if all = r.stopped(); len(all) != 3 || all[2].Box != "w-filler" {
			t.Fatalf("files used up, stopped: %+v", all)
		}
	})
}

// What cannot be looked at is the first suspect when nobody else grew, and a
// disk that cannot be measured starts no box.
func TestDiskFailsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, d.watch)
		r.get("open")
		r.get("hidden")
		pass(time.Second)
		d.hide("hidden")
		d.write("elsewhere", 46*gib, 0)
		pass(3 * time.Second)
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

// Looking costs one call while boxes run, walks are rare, and nothing is looked
// at when nothing can grow.
func TestDiskIsLookedAtCheaply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		r := newRig(t, func(c *sandbox.PoolConfig) { d.watch(c); c.FreezeAfter = 10 * time.Minute })
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
