package boxd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func tempFiles(t testing.TB) func() (*os.File, error) {
	dir := t.TempDir()
	return func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "spool")
		if err == nil {
			err = os.Remove(f.Name())
		}
		return f, err
	}
}

// pattern is a stream whose every byte tells its offset.
func pattern(from, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		o := from + int64(i)
		b[i] = byte(o*7 + o>>8*13 + o>>16)
	}
	return b
}

// TestSpoolProperty: whatever is written and read in whatever pieces, a reader
// gets the right bytes for their offsets, head and tail are there, and what is
// missing lies between them and is counted.
func TestSpoolProperty(t *testing.T) {
	files := tempFiles(t)
	rapid.Check(t, func(t *rapid.T) {
		pool := &spoolPool{limit: rapid.SampledFrom([]int64{64, 1000, 4096, 200_000, 1 << 20}).Draw(t, "limit"), file: files}
		broken := rapid.IntRange(0, 4).Draw(t, "disk") == 0
		if broken {
			pool.file = func() (*os.File, error) { return nil, errors.New("no disk") }
		}
		if rapid.Bool().Draw(t, "memory is scarce") {
			pool.memory.Store(spoolMemoryAll)
		}
		begin := pool.memory.Load()
		s := newSpool(pool, false, func() {})
		var end int64
		readFrom := func(off int64) {
			buf := make([]byte, rapid.IntRange(1, 100_000).Draw(t, "buf"))
			at, n, more := s.read(off, buf, rapid.Bool().Draw(t, "final"))
			if at < off || at+int64(n) > end && n > 0 {
				t.Fatalf("read(%d) gave [%d, %d) of %d", off, at, at+int64(n), end)
			}
			if !bytes.Equal(buf[:n], pattern(at, int64(n))) {
				t.Fatalf("read(%d): wrong bytes at %d", off, at)
			}
			if at > off && off < end && n == 0 {
				t.Fatalf("read(%d) jumped to %d for nothing", off, at)
			}
			if off < end && n == 0 {
				t.Fatalf("read(%d) of %d gave nothing", off, end)
			}
			if !more && n > 0 && at+int64(n) < end {
				t.Fatalf("read(%d) says that [%d, %d) is not there", off, at+int64(n), end)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "write") {
				n := rapid.Int64Range(1, rapid.SampledFrom([]int64{100, 5000, 300_000}).Draw(t, "size")).Draw(t, "n")
				s.Write(pattern(end, n))
				end += n
			} else if end > 0 {
				readFrom(rapid.Int64Range(0, end-1).Draw(t, "off"))
			}
		}
		written, dropped := s.counts()
		if written != end {
			t.Fatalf("written %d, want %d", written, end)
		}
		kept := drainSpool(t, s, end)
		if int64(kept) != end-dropped {
			t.Fatalf("%d bytes can be read, %d written, %d dropped", kept, end, dropped)
		}
		if !broken && dropped != max(0, end-pool.limit) {
			t.Fatalf("dropped %d of %d with a limit of %d", dropped, end, pool.limit)
		}
		if at, n, _ := s.read(end+5, make([]byte, 9), true); n != 0 || at < end {
			t.Fatalf("read beyond the end gave %d at %d", n, at)
		}
		s.close()
		s.close()
		if pool.memory.Load() != begin {
			t.Fatalf("%d bytes of memory are still accounted", pool.memory.Load()-begin)
		}
	})
}

func drainSpool(t *rapid.T, s *spool, end int64) (kept int) {
	buf := make([]byte, 3001)
	for off := int64(0); off < end; {
		at, n, _ := s.read(off, buf, true)
		if n == 0 {
			t.Fatalf("stuck at %d of %d", off, end)
		}
		if !bytes.Equal(buf[:n], pattern(at, int64(n))) {
			t.Fatalf("wrong bytes at %d", at)
		}
		kept += n
		off = at + int64(n)
	}
	return kept
}

// TestSpoolDiskFailsOnTheWay: what was kept stays readable, the newest too.
func TestSpoolDiskFailsOnTheWay(t *testing.T) {
	for _, when := range []int64{spoolMemory, 300_000, 700_000} {
		var file *os.File
		files := tempFiles(t)
		pool := &spoolPool{limit: 1 << 20, file: func() (f *os.File, err error) {
			file, err = files()
			return file, err
		}}
		s := newSpool(pool, false, func() {})
		var end int64
		write := func(n int64) { s.Write(pattern(end, n)); end += n }
		for end <= when {
			write(10_000)
		}
		_ = file.Close() // every access fails from now on
		kept, err := os.CreateTemp(t.TempDir(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		for range 20 {
			write(5_000)
		}
		buf := make([]byte, 1000)
		at, n, _ := s.read(end-1000, buf, true)
		if at != end-1000 || n != 1000 || !bytes.Equal(buf, pattern(at, 1000)) {
			t.Errorf("disk failed at %d: tail gave %d bytes at %d", when, n, at)
		}
		if written, dropped := s.counts(); written != end || dropped <= 0 {
			t.Errorf("disk failed at %d: %d written, %d dropped", when, written, dropped)
		}
		s.close()
	}
}

// TestSpoolTouchesNoDiskForLittle: a call that prints little costs no file.
func TestSpoolTouchesNoDiskForLittle(t *testing.T) {
	pool := &spoolPool{limit: 8 << 20, file: func() (*os.File, error) { t.Error("a file was made"); return nil, os.ErrInvalid }}
	s := newSpool(pool, false, func() {})
	s.Write(pattern(0, spoolMemory))
	if _, dropped := s.counts(); dropped != 0 {
		t.Errorf("dropped %d", dropped)
	}
	s.close()
}

// TestHZ12_SpoolLines: readers of a line protocol get whole lines in order with
// nothing lost, while the writer runs into the limit over and over.
func TestHZ12_SpoolLines(t *testing.T) {
	files := tempFiles(t)
	rapid.Check(t, func(t *rapid.T) {
		pool := &spoolPool{limit: rapid.SampledFrom([]int64{64, 1000, 100_000}).Draw(t, "limit"), file: files}
		wake := make(chan struct{}, 1)
		s := newSpool(pool, true, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		lines := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 100).Draw(t, "lines")
		var text strings.Builder
		for _, n := range lines {
			text.WriteString(strings.Repeat("x", n))
			text.WriteByte('\n')
		}
		if rapid.Bool().Draw(t, "open end") {
			text.WriteString("rest")
		}
		all := text.String()
		piece := rapid.IntRange(1, 500).Draw(t, "piece")
		var final atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for rest := all; rest != ""; {
				n := min(piece, len(rest))
				s.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			final.Store(true)
			s.changed()
		}()
		var got strings.Builder
		buf := make([]byte, 400)
		deadline := time.After(30 * time.Second)
		for got.Len() < len(all) {
			at, n, _ := s.read(int64(got.Len()), buf, final.Load())
			if at != int64(got.Len()) {
				t.Fatalf("lost [%d, %d)", got.Len(), at)
			}
			got.Write(buf[:n])
			if rapid.Bool().Draw(t, "take") || n == 0 {
				s.release(int64(got.Len()))
			}
			if n == 0 {
				select {
				case <-wake:
				case <-deadline:
					t.Fatalf("stuck at %d of %d", got.Len(), len(all))
				}
			}
		}
		<-done
		if got.String() != all {
			t.Fatal("wrong text")
		}
		s.close()
	})
}

// TestSpoolLinesHoldBackHalfALine: and give it when it is all there is.
func TestSpoolLinesHoldBackHalfALine(t *testing.T) {
	s := newSpool(&spoolPool{limit: 8 << 20, file: tempFiles(t)}, true, func() {})
	buf := make([]byte, 1<<20)
	s.Write([]byte("one\ntw"))
	if _, n, more := s.read(0, buf, false); string(buf[:n]) != "one\n" || more {
		t.Errorf("%q %v", buf[:n], more)
	}
	if _, n, _ := s.read(4, buf, false); n != 0 {
		t.Errorf("half a line: %q", buf[:n])
	}
	if _, n, _ := s.read(4, buf, true); string(buf[:n]) != "tw" {
		t.Errorf("at the end: %q", buf[:n])
	}
	// A line longer than a frame goes in pieces.
	s.Write(bytes.Repeat([]byte("y"), lineFrame))
	if _, n, _ := s.read(4, buf, false); n < lineFrame {
		t.Errorf("a long line gave %d bytes", n)
	}
	s.close()
}

func TestSpoolCloseEndsStall(t *testing.T) {
	for name, end := range map[string]func(*spool){"close": (*spool).close, "kill": (*spool).free} {
		s := newSpool(&spoolPool{limit: 64}, true, func() {})
		done := make(chan struct{})
		go func() { s.Write(bytes.Repeat([]byte("x\n"), 100)); close(done) }()
		select {
		case <-done:
			t.Errorf("%s: nothing stalled", name)
		case <-time.After(20 * time.Millisecond):
		}
		end(s)
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: still stalled", name)
		}
		s.close()
	}
}

func TestSavedOutputKeepsItsEnds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pool := &spoolPool{limit: 3 << 20, file: tempFiles(t)}
		s := newSpool(pool, false, func() {})
		end := rapid.Int64Range(0, 5<<20).Draw(rt, "end")
		for off := int64(0); off < end; off += 1 << 20 {
			s.Write(pattern(off, min(1<<20, end-off)))
		}
		budget := rapid.SampledFrom([]int64{0, 1000, 600_000, flushAll}).Draw(rt, "budget")
		before := budget
		v := s.save(&budget)
		if used := int64(len(v.Head) + len(v.Tail)); used != before-budget || used > 2*flushStream {
			rt.Fatalf("saved %d, budget went from %d to %d", used, before, budget)
		}
		n := newSpool(pool, false, func() {})
		n.restore(v)
		kept := 0
		buf := make([]byte, 100_000)
		for off := int64(0); off < end; {
			at, m, _ := n.read(off, buf, true)
			if m == 0 {
				break
			}
			if !bytes.Equal(buf[:m], pattern(at, int64(m))) {
				rt.Fatalf("wrong bytes at %d", at)
			}
			kept += m
			off = at + int64(m)
		}
		written, dropped := n.counts()
		if written != end || int64(kept) != end-dropped {
			rt.Fatalf("%d written, %d dropped, %d kept of %d", written, dropped, kept, end)
		}
		s.close()
		n.close()
	})
}

func TestStateFilesAreDurableNames(t *testing.T) {
	dir := t.TempDir()
	d, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.saveToken(9); err != nil {
		t.Fatal(err)
	}
	if n, err := d.loadToken(); n != 9 || err != nil {
		t.Error(n, err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "token" {
		t.Errorf("left behind: %v", entries)
	}
	if fi, _ := os.Stat(filepath.Join(dir, "token")); fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
}
