package pack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var crashKeys = Keys{ID: [32]byte{1}, Seal: bytes.Repeat([]byte{2}, 32)}

// crashed is a directory in which a first commit is complete and a second one is not.
type crashed struct {
	first, second []ID
	record        string
}

// commitKind is a kind of commit: into a new file, into a spare file, and into several packs.
type commitKind struct {
	name   string
	spares int
	packs  int
	// noise is the number of its bytes that cannot be compressed.
	noise int
}

var commitKinds = []commitKind{
	{"one pack", 0, 1, 3000}, {"small spare file", 1, 1, 300}, {"large spare file", 1, 1, 6000}, {"outgrown", 1, 4, 3000}, {"several packs", 0, 4, 3000},
}

// open opens a directory for a kind of commit. The store makes spare files only where the test says.
func (k commitKind) open(t *testing.T, dir string, d Disk) *Store {
	t.Helper()
	s, err := Open(dir, crashKeys, Config{Disk: d, Spares: k.spares})
	if err != nil {
		t.Fatal(err)
	}
	s.spares.busy = true
	return s
}

// commits makes the first commit and returns a function that makes the spare files, if the kind has any, and the
// second commit.
func (c *crashed) commits(t *testing.T, s *Store, kind commitKind) (second func() ([]Info, error)) {
	t.Helper()
	w := s.Writer(nil)
	id, err := w.Put(Data, []byte("of the first commit"))
	if err != nil {
		t.Fatal(err)
	}
	c.first = []ID{id}
	if _, err := w.Commit(t.Context(), Record{Data: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	c.record = "second"
	return func() ([]Info, error) {
		c.second = nil
		if err := s.Prepare(); err != nil {
			return nil, err
		}
		w := s.Writer(nil)
		blobs := []string{"a", "b", strings.Repeat("large ", 20_000), noise(0, kind.noise)}
		if kind.packs > 1 {
			s.packBlobs = 4
			blobs = append(blobs, noise(1, 66_000))
			for n := range 9 {
				blobs = append(blobs, strings.Repeat(fmt.Sprint("blob ", n), 10_000))
			}
		}
		for n, b := range blobs {
			id, err := w.Put(Kind(1+n%2), []byte(b))
			if err != nil {
				return nil, errors.Join(err, w.Abort())
			}
			c.second = append(c.second, id)
		}
		infos, err := w.Commit(t.Context(), Record{Data: []byte(c.record)})
		if err == nil && (len(infos) != kind.packs || kind.spares > 0 && kind.packs == 1 && infos[0].Bytes != int64(spareSizes[kind.noise/6000])) {
			t.Errorf("%s: %d packs, the first of %d bytes", kind.name, len(infos), infos[0].Bytes)
		}
		return infos, err
	}
}

// noise returns bytes that cannot be compressed.
func noise(seed byte, n int) string {
	var b bytes.Buffer
	for sum := sha256.Sum256([]byte{seed}); b.Len() < n; sum = sha256.Sum256(sum[:]) {
		b.Write(sum[:])
	}
	return b.String()[:n]
}

// check opens the directory as the next start does: the first commit is there, the second is
// there as a whole if it has returned, its record is there only with all of its blobs, every pack
// is whole, and nothing else is left.
func (c *crashed) check(t *testing.T, dir, when string, returned bool) {
	t.Helper()
	s, err := Open(dir, crashKeys, Config{})
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	files, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != len(files) {
		t.Errorf("%s: %d packs among %d files, %v", when, len(files), len(names), err)
	}
	var all Set
	for _, f := range files {
		all = append(all, f.ID)
		if err := s.Verify(t.Context(), f.ID); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	want, recorded := slices.Clone(c.first), false
	for r, err := range s.Records(t.Context()) {
		recorded = recorded || err == nil && string(r.Data) == c.record
	}
	if recorded {
		want = append(want, c.second...)
	}
	if returned && !recorded {
		t.Errorf("%s: the commit that returned is not there", when)
	}
	r := s.In(all)
	for _, id := range want {
		if _, err := r.Get(t.Context(), id); err != nil {
			t.Errorf("%s: %v", when, err)
			return
		}
	}
}

// TestPowerCutAtEachStep cuts the power before each step of a commit, and of making and removing spare files, on a
// disk that keeps of unsynced content and names anything.
//
// ASH-20.
func TestPowerCutAtEachStep(t *testing.T) {
	for _, kind := range commitKinds {
		d := &stepDisk{}
		s := kind.open(t, t.TempDir(), d)
		var c crashed
		second := c.commits(t, s, kind)
		from := len(d.steps)
		if _, err := second(); err != nil {
			t.Fatal(err)
		}
		returned := len(d.steps)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		seen := map[[32]byte]bool{}
		for n := from; n <= len(d.steps); n++ {
			for _, state := range after(d.steps[:n]).states() {
				if key := digest(state); seen[key] && n < returned {
					continue
				} else {
					seen[key] = true
				}
				dir := t.TempDir()
				for name, content := range state {
					if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				when := fmt.Sprintf("%s, cut after %d of %d steps", kind.name, n-from, len(d.steps)-from)
				c.check(t, dir, when, n >= returned)
			}
		}
		t.Logf("%s: %d steps, %d states", kind.name, len(d.steps)-from, len(seen))
	}
}

// TestPowerCutWhileOpening cuts the power before each step of an Open that removes what a killed writer left: a spare
// file, and one that is half written.
func TestPowerCutWhileOpening(t *testing.T) {
	d, dir := &stepDisk{}, t.TempDir()
	kind := commitKinds[1]
	s := kind.open(t, dir, d)
	var c crashed
	c.commits(t, s, kind)
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	head, _ := s.spares.take(1)
	f, err := d.Overwrite(s.path(s.keys.pack(&head)))
	if err == nil {
		_, err = f.Write(append(head[:], noise(0, 1000)...))
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	from := len(d.steps)
	if _, err := Open(dir, crashKeys, Config{Disk: d}); err != nil {
		t.Fatal(err)
	}
	if len(d.steps) == from {
		t.Error("Open removed nothing")
	}
	for n := from; n <= len(d.steps); n++ {
		for _, state := range after(d.steps[:n]).states() {
			dir := t.TempDir()
			for name, content := range state {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.check(t, dir, fmt.Sprintf("cut after %d of %d steps", n-from, len(d.steps)-from), false)
		}
	}
}

// TestFailureAtEachStep lets each step of a commit fail, and of making spare files: it returns the error, leaves the
// directory as it was, and the next one succeeds.
func TestFailureAtEachStep(t *testing.T) {
	for _, kind := range commitKinds {
		for n, more := 0, true; more; n++ {
			d := &stepDisk{}
			dir := t.TempDir()
			s := kind.open(t, dir, d)
			var c crashed
			second := c.commits(t, s, kind)
			d.n = 0
			d.before = func(at int) error {
				if at == n {
					return syscall.ENOSPC
				}
				return nil
			}
			_, err := second()
			if more = err != nil; !more {
				if d.n > n {
					t.Errorf("%s: step %d failed, and the commit did not", kind.name, n)
				}
				c.check(t, dir, "no failure", true)
				continue
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: step %d: %v", kind.name, n, err)
			}
			for i, ready := range s.spares.ready {
				for _, h := range ready {
					if err := s.spares.drop([]header{h}); err != nil {
						t.Error(err)
					}
				}
				s.spares.ready[i] = nil
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
				t.Errorf("%s: step %d failed: %d files are left, %v", kind.name, n, len(names), err)
			}
			if _, err := second(); err != nil {
				t.Errorf("%s: after a failure of step %d: %v", kind.name, n, err)
			}
			c.check(t, dir, fmt.Sprintf("%s: after a failure of step %d", kind.name, n), true)
		}
	}
}

// TestOpenRemovesLeftovers: the files of a killed writer go, all others stay.
func TestOpenRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, crashKeys, Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := s.Writer(nil)
	if _, err := w.Put(Data, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	count := func(want int) {
		t.Helper()
		if names, err := os.ReadDir(dir); err != nil || len(names) != want {
			t.Errorf("%v, %v; want %d", names, err, want)
		}
	}
	count(2)
	if _, err := Open(dir, crashKeys, Config{ReadOnly: true}); err != nil {
		t.Error(err)
	}
	count(2)
	if s, err = Open(dir, crashKeys, Config{}); err != nil {
		t.Error(err)
	}
	count(1)
	if files, err := s.List(); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}
