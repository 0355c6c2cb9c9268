package pool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
)

// ASH-27: a file counts its share of the disk, so that a box's limit in bytes also
// limits its files; on a disk that reports no number of files it counts little.
func TestASH27_FilesCountTheirPartOfTheDisk(t *testing.T) {
	for _, c := range []struct {
		files int64
		stops int
	}{{1_000_000, 1}, {0, 0}} {
		bubble(t, func(t *testing.T) {
			d := newDisk()
			d.space.Files, d.space.FreeFiles = c.files, c.files
			r := newRig(t, d.watch)
			r.get("filler")
			pass(time.Second)
			d.write("filler", 0, 90_000)
			pass(2 * time.Minute)
			if all := r.stopped(); len(all) != 0 {
				t.Fatalf("below the limit, stopped: %+v", all)
			}
			d.write("filler", 0, 20_000)
			pass(2 * time.Minute)
			all := r.stopped()
			if len(all) != c.stops || c.stops > 0 && (!strings.Contains(all[0].Reason, "over the limit") || all[0].OvershootBytes != 110_000*perFile-10*gib) {
				t.Fatalf("of %d files, stopped: %+v", c.files, all)
			}
		})
	}
}

// ASH-27: whatever its limit, one box takes neither the disk's last files nor its
// reserve of them, however often it comes back: another one starts and works.
func TestASH27_OneBoxLeavesFilesToOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		d.space.Files, d.space.FreeFiles = 40_000, 38_000
		r := newRig(t, func(c *pool.Config) {
			d.watch(c)
			c.Disk.Limit = 0
		})
		left := func() int64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.space.FreeFiles
		}
		for life := range 5 {
			if life > 0 {
				_, err := r.p.Acquire(context.Background(), r.spec("filler"), false, nil)
				r.kind(err, holdfast.KindUnavailable)
				if err == nil || !strings.Contains(err.Error(), "more files") || !strings.Contains(holdfast.HintOf(err), "remove") {
					t.Fatalf("life %d: %v", life, err)
				}
				pass(time.Second << (life - 1))
			}
			r.get("filler")
			pass(time.Second)
			// It makes 100,000 files a second while it runs.
			for n := 0; r.running("filler") && n < 200; n++ {
				d.write("filler", 0, 1000)
				pass(10 * time.Millisecond)
			}
			if r.running("filler") {
				t.Fatalf("life %d was not stopped, %d files are left", life, left())
			}
		}
		all := r.stopped()
		if len(all) != 5 || !strings.Contains(all[0].Reason, "more files") || all[0].OvershootBytes <= 0 {
			t.Fatalf("stopped %d times: %+v", len(all), all[0])
		}
		if n := left(); n < 2000 {
			t.Fatalf("%d files are left, the reserve is 2000", n)
		}
		if _, err := r.p.Acquire(context.Background(), r.spec("other"), false, nil); err != nil {
			t.Fatal(err)
		}
		d.write("other", 0, 50)
		pass(time.Minute)
		if !r.running("other") {
			t.Errorf("a box with a few files was stopped: %+v", r.stopped())
		}
	})
}

// A box that had many files before others used the room for more is left alone as long
// as it makes none.
func TestABoxWithManyOldFilesIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDisk()
		d.space.Files, d.space.FreeFiles = 400_000, 390_000
		r := newRig(t, d.watch)
		d.write("old", 0, 30_000)
		r.get("old")
		pass(time.Second)
		d.write("elsewhere", 0, 320_000)
		pass(time.Hour)
		if all := r.stopped(); len(all) != 0 {
			t.Fatalf("stopped: %+v", all)
		}
		d.write("old", 0, 10_000)
		pass(2 * time.Minute)
		if all := r.stopped(); len(all) != 1 || all[0].Box != holdfast.BoxID("w-old") {
			t.Fatalf("stopped: %+v", all)
		}
	})
}
