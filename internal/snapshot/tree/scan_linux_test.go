package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// content returns a stored file.
func (p *place) content(name string) string {
	p.t.Helper()
	_, r, err := Read(p.t.Context(), p.store, p.last, name)
	must(p.t, err)
	var b bytes.Buffer
	_, err = b.ReadFrom(r)
	must(p.t, err)
	return b.String()
}

// restamp gives a file its old modification time, as a tool does that hides a change.
func (p *place) restamp(name string, st syscall.Stat_t) {
	p.t.Helper()
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: st.Mtim.Sec, Nsec: st.Mtim.Nsec}}
	must(p.t, unix.UtimesNanoAt(unix.AT_FDCWD, p.at(name), ts, 0))
}

// TestUnchanged: an unchanged tree is not read, stores nothing, and keeps its root.
func TestUnchanged(t *testing.T) {
	p := newPlace(t)
	for i := range 20 {
		p.write(fmt.Sprintf("d%d/f%d", i%3, i), fmt.Sprint(i))
	}
	first := p.scan()
	if first.Same || first.Files != 20 || first.Dirs != 4 || first.Changed != 24 || first.Hashed != 20 || first.Bytes != 30 {
		t.Errorf("the first scan: %+v", first)
	}
	p.settle()
	p.scan() // reads what was racy
	stored, read := p.store.bytes, 0
	for range 20 {
		r := p.scan()
		read += r.Hashed
		if !r.Same || r.Changed != 0 || r.Files != 20 || r.Dirs != 4 {
			t.Fatalf("%+v", r)
		}
	}
	if p.store.bytes != stored || read > 15 {
		t.Errorf("%d bytes were stored, %d files read", p.store.bytes-stored, read)
	}
	p.write("d1/f1", "other")
	if r := p.scan(); r.Same || r.Changed != 1 || p.content("d1/f1") != "other" {
		t.Errorf("%+v", r)
	}
	must(t, os.RemoveAll(p.at("d1")))
	if r := p.scan(); r.Root != p.fresh().Root || r.Files != 13 {
		t.Errorf("after a removal: %+v", r)
	}
}

// TestRollingRehash: a file whose content changed without its stat is read within 50 scans, or within a day.
func TestRollingRehash(t *testing.T) {
	for name, step := range map[string]time.Duration{"scans": 0, "time": 6 * time.Hour} {
		p := quickPlace(t)
		for i := range 100 {
			p.write(fmt.Sprint("f", i), "content")
		}
		p.settle()
		p.scan()
		// The record of a file is made wrong, as if the disk had changed the file by itself.
		most, seen, scans := 0, 0, statcache.RehashScans
		if step > 0 {
			scans = int(statcache.RehashTime / step)
		}
		for range scans {
			p.now = p.now.Add(step)
			r := p.scan()
			seen += r.Hashed
			most = max(most, r.Hashed)
		}
		// Chance spreads the files over the scans: two for each, but hardly ever as many as fifteen.
		if seen < 100 || seen > 110 || most > 100/scans*4+6 {
			t.Errorf("by %s: %d files of 100 were read in %d scans, at most %d in one", name, seen, scans, most)
		}
	}
}

// TestMismatch: content that changed without its stat is reported, and stored as it is now.
func TestMismatch(t *testing.T) {
	p := newPlace(t)
	p.write("f", "before")
	p.settle()
	p.scan()
	var st syscall.Stat_t
	must(t, syscall.Stat(p.at("f"), &st))
	p.write("f", "behind")
	p.restamp("f", st)
	// The cache is told the new ctime, so nothing but the content differs.
	c, err := statcache.Open(p.state, p.last)
	must(t, err)
	base := statcache.NewRun(p.state)
	rs := c.Runs()[1]
	for rs.Next(); rs.OK; rs.Next() {
		if statcache.Path(rs.Rec.Key) == "f" && !rs.Rec.Is(statcache.End) {
			must(t, syscall.Stat(p.at("f"), &st))
			rs.Rec.Stat.Ctime = st.Ctim.Nano()
		}
		must(t, base.Add(&rs.Rec))
	}
	must(t, c.Replace(base, c.Head))
	c.Close()
	p.settle()
	var found []string
	for range statcache.RehashScans {
		found = append(found, p.scan().Mismatches...)
	}
	if !slices.Equal(found, []string{"f"}) || p.content("f") != "behind" {
		t.Errorf("mismatches %q, content %q", found, p.content("f"))
	}
}

// TestCacheOfNoUse: a cache that is cut, damaged or of another root is ignored; a scan that was not saved does not
// hide what it saw.
func TestCacheOfNoUse(t *testing.T) {
	p := quickPlace(t)
	for i := range 500 {
		p.write(fmt.Sprint("f", i), "content")
	}
	p.settle()
	p.scan()
	p.write("f1", "changed")
	p.scan()
	path := filepath.Join(p.state, "stat")
	good, err := os.ReadFile(path)
	must(t, err)
	for i, b := range [][]byte{
		{},
		good[:50], good[:len(good)/2], good[:len(good)-1],
		append(bytes.Clone(good[:200]), append([]byte{good[200] ^ 1}, good[201:]...)...),
		append(bytes.Clone(good[:len(good)-5]), 1, 2, 3, 4, 5),
		append([]byte("HFSTAT\x00\x02"), good[8:]...),
	} {
		must(t, os.WriteFile(path, b, 0o600))
		if r := p.scan(); r.Hashed != 500 || !r.Same {
			t.Errorf("cache %d: %d files were read", i, r.Hashed)
		}
	}
	was := p.last
	p.write("f2", "changed, too")
	s := NewScan(p.config())
	must(t, s.Live(t.Context()))
	r, err := s.Finish(t.Context())
	must(t, err)
	s.Close()
	// The blobs are durable, the server is killed before Save.
	p.last = r.Root
	if r := p.scan(); r.Hashed != 500 || !r.Same {
		t.Errorf("after a scan that was not saved: %+v", r)
	}
	p.last = was
	if r := p.scan(); r.Hashed != 500 || r.Same {
		t.Errorf("with another root: %+v", r)
	}
}

// TestCacheStaysSmall: many scans with changes leave a cache of less than twice the size of a new one.
func TestCacheStaysSmall(t *testing.T) {
	p := quickPlace(t)
	for i := range 2000 {
		p.write(fmt.Sprintf("d%d/f%d", i%20, i), "content")
	}
	p.settle()
	p.scan()
	path := filepath.Join(p.state, "stat")
	fresh, wrote := size(path), int64(0)
	for i := range 60 {
		p.write(fmt.Sprintf("d%d/f%d", i%20, i), fmt.Sprint(i))
		before := size(path)
		p.scan()
		if now := size(path); now > before {
			wrote += now - before
		}
	}
	if now := size(path); now > 2*fresh || wrote > 60*2048 {
		t.Errorf("the cache has %d bytes, a new one %d; %d bytes were added", now, fresh, wrote)
	}
	if got, want := p.scan().Root, p.fresh().Root; got != want {
		t.Error("another root than that of a scan without a cache")
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestStill: what moves between the passes is stored as Still finds it; what Still does not get to is named.
func TestStill(t *testing.T) {
	p := newPlace(t)
	for i := range 10 {
		p.write(fmt.Sprintf("d/f%d", i), "before")
	}
	p.settle()
	p.scan()
	p.write("d/f0", "live")
	r := p.scan(func(s *Scan) {
		p.write("d/f1", "still")
		p.write("e/new", "still")
		must(t, os.Remove(p.at("d/f2")))
		must(t, os.Rename(p.at("d/f3"), p.at("e/f3")))
		must(t, os.Remove(p.at("d/f4")))
		must(t, os.Mkdir(p.at("d/f4"), 0o755))
		must(t, s.Still(t.Context()))
	})
	if r.FuzzyCount != 0 || r.Unchecked != "" || r.Root != p.fresh().Root {
		t.Errorf("%+v", r)
	}
	r = p.scan(func(s *Scan) {
		p.write("d/f1", "too late")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, s.Still(ctx))
	})
	if r.Unchecked != "." || p.content("d/f1") != "still" {
		t.Errorf("without time: unchecked from %q, %q", r.Unchecked, p.content("d/f1"))
	}
	if r := p.scan(); r.Root != p.fresh().Root {
		t.Errorf("the next scan: %+v", r)
	}
}

// TestFuzzy: a file that changes whenever it is read is stored and named; if Still finds it at rest, it is not named.
func TestFuzzy(t *testing.T) {
	p := newPlace(t)
	p.write("f", "before")
	p.write("g", "before")
	n, busy := 0, true
	p.change = func(c *Config) {
		c.Sink = &busySink{p.store, func() {
			if n++; busy {
				p.write("f", strings.Repeat("x", n))
			}
		}}
	}
	r := p.scan()
	if !slices.Equal(r.Fuzzy, []string{"f"}) || r.FuzzyCount != 1 {
		t.Errorf("fuzzy: %q", r.Fuzzy)
	}
	r = p.scan(func(s *Scan) {
		busy = false
		must(t, s.Still(t.Context()))
	})
	if r.FuzzyCount != 0 || r.Root != p.fresh().Root {
		t.Errorf("after Still: %q", r.Fuzzy)
	}
	// Still runs out of time while it reads.
	p.settle()
	p.scan()
	ctx, cancel := context.WithCancel(t.Context())
	large := strings.Repeat("y", 6<<20)
	r = p.scan(func(s *Scan) {
		p.write("f", large)
		s.content.sink = &busySink{p.store, cancel}
		must(t, s.Still(ctx))
	})
	if !slices.Equal(r.Fuzzy, []string{"f"}) || r.Unchecked != "f" {
		t.Errorf("out of time: fuzzy %q, unchecked %q", r.Fuzzy, r.Unchecked)
	}
	p.change = nil
	if r := p.scan(); r.Root != p.fresh().Root || p.content("f") != large {
		t.Error("the next scan does not have the file")
	}
}

// busySink calls a function before each blob of data.
type busySink struct {
	*store
	before func()
}

func (s *busySink) Put(kind pack.Kind, data []byte) (pack.ID, error) {
	if kind == pack.Data {
		s.before()
	}
	return s.store.Put(kind, data)
}

// TestSkipped: what cannot be stored is named with the reason, exclusions are left out.
//
// ASH-21.
func TestSkipped(t *testing.T) {
	p := newPlace(t)
	p.write("keep", "x")
	p.write("out/of/it", "x")
	must(t, unix.Mkfifo(p.at("fifo"), 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: p.at("socket")}))
	p.change = func(c *Config) {
		c.Exclude = func(path string, dir bool) bool { return path == "out" && dir }
	}
	for range 2 {
		r := p.scan()
		got := fmt.Sprint(r.Skipped)
		if r.SkippedCount != 2 || !strings.Contains(got, "{fifo a FIFO}") || !strings.Contains(got, "{socket a socket}") || r.Files != 1 || r.Dirs != 1 {
			t.Errorf("%+v", r)
		}
	}
	p.change = func(c *Config) { c.Bounds = rooted.Bounds{Entries: 3, Depth: 10} }
	s := NewScan(p.config())
	defer s.Close()
	wantKind(t, s.Live(t.Context()), holdfast.KindTooLarge, "more than 3")
}

// TestFaultsEndTheScan: a scan for which the server has too few descriptors fails, and stores nothing as a tree in which the
// entries that it could not open are missing.
func TestFaultsEndTheScan(t *testing.T) {
	p := newPlace(t)
	p.write("a/b/c/f", "x")
	p.write("a/g", "x")
	want := p.fresh().Root
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	failed := 0
	for n := uint64(0); n < limit.Cur; n++ {
		s := NewScan(p.config())
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: limit.Max}))
		err := s.Live(t.Context())
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		if err == nil {
			r, err := s.Finish(t.Context())
			must(t, err)
			if s.Close(); r.Root != want || r.SkippedCount > 0 {
				t.Errorf("with %d descriptors the scan leaves out %v", n, r.Skipped)
			}
			break
		}
		s.Close()
		failed++
	}
	if failed < 3 {
		t.Errorf("%d scans failed", failed)
	}
}

// TestIgnoredNeedsTheLastTree: if the last tree cannot be read, it is not known which ignored paths it has, so the scan
// fails instead of leaving them out.
func TestIgnoredNeedsTheLastTree(t *testing.T) {
	p := newPlace(t)
	p.write("f", "x")
	p.scan()
	must(t, os.RemoveAll(p.state)) // the cache would say which paths the last tree has
	must(t, os.Mkdir(p.state, 0o700))
	p.store.bad = p.last
	p.change = func(c *Config) { c.Ignore = func(path string, _ bool) bool { return path == "f" } }
	s := NewScan(p.config())
	defer s.Close()
	wantKind(t, s.Live(t.Context()), holdfast.KindNotFound, "no blob")
}

// TestSinkFails: an error of the sink ends the scan, and the next one stores everything.
func TestSinkFails(t *testing.T) {
	p := newPlace(t)
	p.write("f", "x")
	p.store.broken = errors.New("the disk is full")
	s := NewScan(p.config())
	if err := s.Live(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	s.Close()
	s.Close()
	p.store.broken = nil
	p.scan()
	if p.content("f") != "x" {
		t.Error("f is not stored")
	}
}

// TestScanNeedsLittleMemory: a scan of many files, most of them in one directory, needs little memory.
func TestScanNeedsLittleMemory(t *testing.T) { littleMemory(t, 10_000, 16<<20) }

// TestScanOf200000NeedsLittleMemory: a scan of 200,000 files stays below 64 MiB.
func TestScanOf200000NeedsLittleMemory(t *testing.T) {
	testkit.Long(t)
	littleMemory(t, 200_000, 64<<20)
}

func littleMemory(t *testing.T, n int, bound int64) {
	p := quickPlace(t)
	for i := range n {
		name := fmt.Sprintf("a-directory-of-many/some-file-of-a-usual-name-%06d.go", i)
		if i%4 == 0 {
			name = fmt.Sprintf("d%03d/some-file-of-a-usual-name-%06d.go", i%500, i)
		}
		if i < 2000 {
			p.write(name, "")
			continue
		}
		fd, err := unix.Open(p.at(name), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		must(t, err)
		must(t, unix.Close(fd))
	}
	p.store.nothing = true
	p.settle()
	for range 2 {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		most := uint64(0)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			}
		}()
		p.scan()
		cancel()
		<-done
		grown := int64(most) - int64(before.HeapInuse)
		t.Logf("%d KiB of heap", grown>>10)
		if grown > bound {
			t.Errorf("the heap grew by %d KiB", grown>>10)
		}
		p.write("d001/new", "x")
	}
}

// TestLong: a scan that reads a few small files is not called long.
func TestLong(t *testing.T) {
	for _, c := range []struct {
		name        string
		files, size int
		long        bool
	}{
		{"few small files", shortFiles, 100, false},
		{"one file more", shortFiles + 1, 100, true},
		{"many bytes", 2, shortBytes/2 + 1, true},
		{"no more bytes than that", 2, shortBytes / 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := quickPlace(t)
			for i := range c.files {
				p.write(fmt.Sprint(i), strings.Repeat("x", c.size))
			}
			reads, calls := 0, 0
			p.change = func(cfg *Config) {
				cfg.Reads = func(long bool) {
					if reads++; long {
						calls++
					}
				}
			}
			p.scan()
			if (calls > 0) != c.long || reads != c.files {
				t.Errorf("%d files read, %d of them in a long scan", reads, calls)
			}
		})
	}
}
