package tree

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// packed is a place whose blobs go to packs.
type packed struct {
	*place
	packs *pack.Store
	known pack.Set
	// wrote counts the bytes of packs and of the stat cache.
	wrote int64
}

func newPacked(b testing.TB) *packed {
	p := &packed{place: newPlace(b)}
	var err error
	p.packs, err = pack.Open(filepath.Join(b.TempDir(), "packs"), pack.Keys{}, pack.Config{})
	must(b, err)
	return p
}

// scan does what a checkpoint does, without the database.
func (p *packed) scan() Result {
	p.t.Helper()
	w := p.packs.Writer(p.known)
	c := p.config()
	c.Sink, c.Source = w, p.packs.In(p.known)
	s := NewScan(c)
	defer s.Close()
	must(p.t, s.Live(p.t.Context()))
	r, err := s.Finish(p.t.Context())
	must(p.t, err)
	if r.Same {
		must(p.t, w.Abort())
	} else {
		infos, err := w.Commit(p.t.Context(), pack.Record{})
		must(p.t, err)
		for _, info := range infos {
			p.known = append(p.known, info.ID)
			p.wrote += info.Bytes
		}
	}
	before := size(filepath.Join(p.state, "stat"))
	must(p.t, r.Save())
	if after := size(filepath.Join(p.state, "stat")); after >= before {
		p.wrote += after - before
	} else {
		p.wrote += after
	}
	p.last = r.Root
	return r
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measured runs change and a scan, and reports CPU time and bytes written by the scans alone.
func measured(b *testing.B, p *packed, change func(n int)) {
	b.Helper()
	var used time.Duration
	var worst int64
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		change(n)
		p.settle()
		p.wrote = 0
		before := cpu()
		b.StartTimer()
		p.scan()
		b.StopTimer()
		used += cpu() - before
		worst = max(worst, p.wrote)
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(worst), "worst-bytes-written")
}

func BenchmarkUnchanged(b *testing.B) {
	p := newPacked(b)
	for i := range 5 {
		p.write(fmt.Sprintf("f%d", i), fmt.Sprint(i))
	}
	p.settle()
	p.scan()
	before := cpu()
	for b.Loop() {
		p.scan()
	}
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}

// manyFiles makes 10,000 files of 10 KB each in 100 directories, or in one.
func manyFiles(p *packed, flat bool) func(i int) string {
	name := func(i int) string { return fmt.Sprintf("d%02d/sub/file-%05d.txt", i%100, i) }
	if flat {
		name = func(i int) string { return fmt.Sprintf("file-%05d.txt", i) }
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		p.write(name(i), string(random(r, 10<<10)))
	}
	p.settle()
	return name
}

func benchmarkMany(b *testing.B, flat bool) {
	p := newPacked(b)
	name := manyFiles(p, flat)
	p.scan()
	r := rand.New(rand.NewPCG(3, 4))
	measured(b, p, func(int) {
		for range 10 {
			p.write(name(r.IntN(10_000)), string(random(r, 10<<10)))
		}
	})
}

func BenchmarkTenOf10000(b *testing.B)     { benchmarkMany(b, false) }
func BenchmarkTenOfFlat10000(b *testing.B) { benchmarkMany(b, true) }

func BenchmarkUnchanged10000(b *testing.B) {
	p := newPacked(b)
	manyFiles(p, false)
	p.scan()
	measured(b, p, func(int) {})
}

// oneGigabyte takes a snapshot of a file of 1 GB, and returns a function that changes 4 KB of it.
func oneGigabyte(b testing.TB, p *packed) (change func(n int)) {
	f, err := os.Create(p.at("large"))
	must(b, err)
	b.Cleanup(func() { must(b, f.Close()) })
	r := rand.New(rand.NewPCG(5, 6))
	for range 1024 {
		_, err := f.Write(random(r, 1<<20))
		must(b, err)
	}
	p.settle()
	p.scan()
	return func(int) {
		_, err := f.WriteAt(random(r, 4<<10), r.Int64N(1<<30-4<<10))
		must(b, err)
	}
}

func BenchmarkFourKilobytesOfOneGigabyte(b *testing.B) {
	p := newPacked(b)
	measured(b, p, oneGigabyte(b, p))
}

// BenchmarkRestore restores 10,000 files of 100 MB, and copies them with cp -a and a sync.
func BenchmarkRestore(b *testing.B) {
	p := newPacked(b)
	manyFiles(p, false)
	root := p.scan().Root
	ways := map[string]func(to string){
		"restore": func(to string) { must(b, Restore(b.Context(), p.packs.In(p.known), root, to, me())) },
		"cp-a": func(to string) {
			must(b, exec.CommandContext(b.Context(), "cp", "-a", p.dir, to).Run())
			must(b, rooted.Sync(to))
		},
	}
	to := filepath.Join(b.TempDir(), "to")
	took := map[string]time.Duration{}
	for b.Loop() {
		for name, way := range ways {
			start := time.Now()
			way(to)
			took[name] += time.Since(start)
			must(b, rooted.RemoveAll(to))
		}
	}
	for name, d := range took {
		b.ReportMetric(float64(d.Milliseconds())/float64(b.N), name+"-ms/op")
	}
}
