package tree

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestRacyIsReadAgain: a file that changed just before it was read is read again by the next scan, although its
// stat is the same, and by later ones no more. With processes the same holds for files that a long write may have changed.
func TestRacyIsReadAgain(t *testing.T) {
	for _, processes := range []bool{false, true} {
		p := newPlace(t)
		p.change = func(c *Config) { c.Processes = processes }
		p.write("f", "x")
		for i, want := range []int{1, 1} {
			if r := p.scan(); r.Hashed != want {
				t.Fatalf("scan %d read %d files", i, r.Hashed)
			}
			if i == 0 && processes {
				p.settle()
			}
		}
		if r := p.scan(func(s *Scan) { must(t, s.Still(t.Context())) }); r.Root != p.fresh().Root {
			t.Error("another root after Still")
		}
		p.change = nil
		p.settle()
		read := 0
		for range 5 {
			read += p.scan().Hashed
		}
		if read > 2 {
			t.Errorf("%d files were read of a tree at rest", read)
		}
	}
}

// TestHiddenChange: a change of the same size with the modification time of before is found.
func TestHiddenChange(t *testing.T) {
	p := newPlace(t)
	p.write("f", "before")
	p.write("g", "before")
	p.settle()
	p.scan()
	p.settle()
	p.scan()
	var st syscall.Stat_t
	must(t, syscall.Stat(p.at("f"), &st))
	p.write("f", "behind")
	p.restamp("f", st)
	must(t, syscall.Stat(p.at("g"), &st))
	must(t, os.Rename(p.at("g"), p.at("h")))
	p.write("g", "behind")
	p.restamp("g", st)
	r := p.scan()
	if p.content("f") != "behind" || p.content("g") != "behind" || len(r.Mismatches) > 0 {
		t.Errorf("%q, %q, %+v", p.content("f"), p.content("g"), r)
	}
}

// TestMappedStores: each store through a mapping that stays is found, because the pages were written back before.
func TestMappedStores(t *testing.T) {
	p := newPlace(t)
	p.change = func(c *Config) { c.Processes = true }
	p.write("f", strings.Repeat("x", 4096))
	m := p.mapping("f", 4096)
	for i := range 8 {
		m[i] = 'y'
		// Once the last change is old enough, nothing but a new ctime makes a scan read the file.
		for range 3 {
			p.scan()
			backdate(p)
		}
		if got := p.content("f"); got != string(m) {
			t.Fatalf("store %d was missed", i)
		}
	}
}

// backdate takes the flags of racy entries off the cache, as if the changes had been long ago.
func backdate(p *place) {
	p.t.Helper()
	c, err := statcache.Open(p.state, p.last)
	must(p.t, err)
	defer c.Close()
	base := statcache.NewRun(p.state)
	m := statcache.Merge(c.Runs()...)
	for err = m.There(); m.Rec != nil && err == nil; err = m.There() {
		m.Rec.Flags &= statcache.End
		must(p.t, base.Add(m.Rec))
	}
	must(p.t, err)
	must(p.t, c.Replace(base, c.Head))
}

// TestRacyWrites: while a process changes files in every way that hides a change, each scan with a cache finds
// what a scan that reads everything finds.
func TestRacyWrites(t *testing.T) { racyWrites(t, 150) }

// TestRacyWritesLong does the same with more rounds.
func TestRacyWritesLong(t *testing.T) {
	testkit.Long(t)
	racyWrites(t, testkit.Rounds(10_000))
}

func racyWrites(t *testing.T, rounds int) {
	p := newPlace(t)
	p.change = func(c *Config) { c.Processes = true }
	const files, length = 12, 3 * 4096
	r := rand.New(rand.NewPCG(1, 1))
	for i := range files {
		p.write(fmt.Sprintf("d%d/f%d", i%2, i), string(random(r, length)))
	}
	w := &racer{p: p, r: r, files: files, length: length}
	for i := range files / 3 {
		w.mappings = append(w.mappings, p.mapping(fmt.Sprintf("d%d/f%d", i%2, i), length))
	}
	missed := 0
	for round := range rounds {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				w.step()
			}
		}()
		still := round%3 == 0
		p.scan(func(s *Scan) {
			if still {
				stop()
				<-done
				must(t, s.Still(t.Context()))
			}
		})
		stop()
		<-done
		if round%2 == 0 {
			w.step()
		}
		if round%7 == 0 {
			p.settle()
		}
		if got, want := p.scan().Root, p.everything(); got != want {
			missed++
			t.Errorf("round %d: a change was missed", round)
		}
	}
	t.Logf("%d changes in %d rounds, %d missed", w.n, rounds, missed)
	if w.n < rounds {
		t.Errorf("only %d changes", w.n)
	}
}

// everything returns the root of a tree whose every file is read.
func (p *place) everything() pack.ID {
	q := *p
	q.last, q.change = pack.ID{}, nil
	q.state += "-fresh"
	must(p.t, os.MkdirAll(q.state, 0o700))
	return q.scan().Root
}

// mapping maps a file for writing.
func (p *place) mapping(name string, length int) []byte {
	p.t.Helper()
	f, err := os.OpenFile(p.at(name), os.O_RDWR, 0)
	must(p.t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(p.t, err)
	p.t.Cleanup(func() { must(p.t, unix.Munmap(m)) })
	return m
}

// racer changes files so that size and modification time stay.
type racer struct {
	p             *place
	r             *rand.Rand
	files, length int
	mappings      [][]byte
	n             int
}

func (w *racer) name(i int) string { return w.p.at(fmt.Sprintf("d%d/f%d", i%2, i)) }

func (w *racer) step() {
	w.n++
	i := w.r.IntN(w.files)
	switch w.r.IntN(4) {
	case 0:
		m := w.mappings[w.r.IntN(len(w.mappings))]
		m[w.r.IntN(len(m))]++
		return
	case 1:
		_ = unix.Renameat2(unix.AT_FDCWD, w.name(i), unix.AT_FDCWD, w.name(w.r.IntN(w.files)), unix.RENAME_EXCHANGE)
	case 2:
		_ = unix.Renameat2(unix.AT_FDCWD, w.p.at("d0"), unix.AT_FDCWD, w.p.at("d1"), unix.RENAME_EXCHANGE)
	case 3:
		f, err := os.OpenFile(w.name(i), os.O_WRONLY, 0)
		if err == nil {
			_, _ = f.WriteAt([]byte{byte(w.n)}, int64(w.r.IntN(w.length)))
			_ = f.Close()
		}
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 1_700_000_000}}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, w.name(i), ts, 0)
}
