package pack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// step is a change of the disk that the store asked for.
type step struct {
	op       string // create, overwrite, write, sync, link, rename, remove, syncdir
	path, to string
	data     []byte
}

// stepDisk is the disk of the operating system. It calls before with the number of each step and
// does not take the step if before returns an error. It records the steps that it took.
type stepDisk struct {
	OSDisk
	before func(n int) error
	steps  []step
	n      int
}

func (d *stepDisk) take(s step, do func() error) error {
	d.n++
	if d.before != nil {
		if err := d.before(d.n - 1); err != nil {
			return &os.PathError{Op: s.op, Path: s.path, Err: err}
		}
	}
	err := do()
	if err == nil {
		d.steps = append(d.steps, s)
	}
	return err
}

func (d *stepDisk) Create(path string) (f DiskFile, err error) {
	err = d.take(step{op: "create", path: path}, func() error {
		f, err = d.OSDisk.Create(path)
		return err
	})
	return stepFile{f, d, path}, err
}

func (d *stepDisk) Overwrite(path string) (f DiskFile, err error) {
	err = d.take(step{op: "overwrite", path: path}, func() error {
		f, err = d.OSDisk.Overwrite(path)
		return err
	})
	return stepFile{f, d, path}, err
}

func (d *stepDisk) Link(from, to string) error {
	return d.take(step{op: "link", path: from, to: to}, func() error { return d.OSDisk.Link(from, to) })
}

func (d *stepDisk) Rename(from, to string) error {
	return d.take(step{op: "rename", path: from, to: to}, func() error { return d.OSDisk.Rename(from, to) })
}

func (d *stepDisk) Remove(path string) error {
	return d.take(step{op: "remove", path: path}, func() error { return d.OSDisk.Remove(path) })
}

func (d *stepDisk) SyncDir(dir string) error {
	return d.take(step{op: "syncdir", path: dir}, func() error { return d.OSDisk.SyncDir(dir) })
}

type stepFile struct {
	DiskFile
	disk *stepDisk
	path string
}

func (f stepFile) Write(b []byte) (n int, err error) {
	err = f.disk.take(step{op: "write", path: f.path, data: bytes.Clone(b)}, func() error {
		n, err = f.DiskFile.Write(b)
		return err
	})
	return n, err
}

func (f stepFile) Sync() error {
	return f.disk.take(step{op: "sync", path: f.path}, f.DiskFile.Sync)
}

// model is the content of a disk: what was written, and what of it is certain to be durable.
type model struct {
	files map[string]*modelFile
	// synced are the names at the last sync of the directory, and changes those since.
	synced  map[string]*modelFile
	changes []change
}

type modelFile struct {
	written, synced []byte
	// at is where the next write goes.
	at int
}

func (f *modelFile) write(b []byte) {
	f.written = append(f.written[:f.at:f.at], append(b, f.written[min(f.at+len(b), len(f.written)):]...)...)
	f.at += len(b)
}

// parts returns what may be on the disk of content that is not synced.
func (f *modelFile) parts() (out [][]byte) {
	if len(f.written) > len(f.synced) {
		rest := f.written[len(f.synced):]
		for _, r := range [][]byte{nil, rest[:len(rest)/2], make([]byte, len(rest)), rest} {
			out = append(out, slices.Concat(f.synced, r))
		}
		return out
	}
	// A disk writes the sectors of a file that is overwritten in any order.
	const sector = 512
	out = [][]byte{f.synced, f.written}
	for at := 0; at < len(f.written); at += sector {
		if end := min(at+sector, len(f.written)); !bytes.Equal(f.synced[at:end], f.written[at:end]) {
			without, only := bytes.Clone(f.written), bytes.Clone(f.synced)
			copy(without[at:], f.synced[at:end])
			copy(only[at:], f.written[at:end])
			out = append(out, without, only)
		}
	}
	return out
}


// change gives a file a name, takes one away, or both.
type change struct {
	from, to string
	file     *modelFile
}

func (c change) apply(names map[string]*modelFile) map[string]*modelFile {
	delete(names, c.from)
	if c.to != "" {
		names[c.to] = c.file
	}
	return names
}

// after returns the disk after the steps.
func after(steps []step) *model {
	m := &model{files: map[string]*modelFile{}, synced: map[string]*modelFile{}}
	for _, s := range steps {
		name := filepath.Base(s.path)
		switch s.op {
		case "create":
			m.change(change{to: name, file: &modelFile{}})
		case "overwrite":
			m.files[name].at = 0
		case "write":
			m.files[name].write(bytes.Clone(s.data))
		case "link":
			m.change(change{to: filepath.Base(s.to), file: m.files[name]})
		case "sync":
			m.files[name].synced = bytes.Clone(m.files[name].written)
		case "rename":
			m.change(change{from: name, to: filepath.Base(s.to), file: m.files[name]})
		case "remove":
			m.change(change{from: name})
		case "syncdir":
			m.synced, m.changes = maps.Clone(m.files), nil
		}
	}
	return m
}

func (m *model) change(c change) {
	c.apply(m.files)
	m.changes = append(m.changes, c)
}

// states returns what may be on the disk after a power cut: of the changes of names since the last
// sync of the directory the first ones or a single one, and of content that is not synced nothing,
// half, zeros or all; of content that was overwritten any sector alone, or all but one.
func (m *model) states() (out []map[string][]byte) {
	all := []map[string]*modelFile{m.synced}
	for n, c := range m.changes {
		all = append(all, c.apply(maps.Clone(all[n])))
	}
	for _, c := range m.changes {
		all = append(all, c.apply(maps.Clone(m.synced)))
	}
	for _, names := range all {
		most := 1
		for unsynced := 0; unsynced < most; unsynced++ {
			state := map[string][]byte{}
			for name, f := range names {
				parts := f.parts()
				most = max(most, len(parts))
				state[name] = parts[min(unsynced, len(parts)-1)]
			}
			out = append(out, state)
		}
	}
	return out
}

// digest identifies a state.
func digest(state map[string][]byte) [32]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%s %d\n", name, len(state[name]))
		h.Write(state[name])
	}
	return [32]byte(h.Sum(nil))
}

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
}

var commitKinds = []commitKind{{"one pack", 0, 1}, {"spare file", 2, 1}, {"outgrown", 2, 4}, {"several packs", 0, 4}}

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
		blobs := []string{"a", "b", strings.Repeat("large ", 20_000), noise(0, 3000)}
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
		if err == nil && (len(infos) != kind.packs || kind.packs == 1 && (infos[0].Bytes == spareSize) != (kind.spares > 0)) {
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
	head, _ := s.spare()
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
			for _, h := range s.spares.ready {
				if err := s.dropSpares([]header{h}); err != nil {
					t.Error(err)
				}
			}
			s.spares.ready = nil
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
