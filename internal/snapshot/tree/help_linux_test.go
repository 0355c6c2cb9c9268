package tree

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("%v (%s), want %s with %q", err, holdfast.KindOf(err), kind, part)
	}
}

// store keeps blobs in memory.
type store struct {
	mu    sync.Mutex
	blobs map[pack.ID][]byte
	// bytes are the bytes of blobs that Put did not know; gets counts the calls of Get.
	bytes int64
	gets  int
	// broken is returned by Put, and by Get for the blob bad.
	broken error
	bad    pack.ID
	// nothing makes the store forget the content of blobs.
	nothing bool
}

func newStore() *store { return &store{blobs: map[pack.ID][]byte{}} }

func (s *store) Put(kind pack.Kind, data []byte) (pack.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return pack.ID{}, s.broken
	}
	id := s.ID(kind, data)
	if _, ok := s.blobs[id]; !ok {
		s.bytes += int64(len(data))
		s.blobs[id] = nil
		if !s.nothing {
			s.blobs[id] = slices.Clone(data)
		}
	}
	return id, nil
}

func (s *store) ID(kind pack.Kind, data []byte) pack.ID {
	h := sha256.New()
	h.Write([]byte{byte(kind)})
	h.Write(data)
	return pack.ID(h.Sum(nil))
}

func (s *store) Get(_ context.Context, id pack.ID) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	b, ok := s.blobs[id]
	if !ok || id == s.bad {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "pack.get", "no blob %x", id[:4])
	}
	return b, nil
}

// place is a tree with what scans of it need.
type place struct {
	t          testing.TB
	dir, state string
	store      *store
	last       pack.ID
	change     func(*Config)
	now        time.Time
}

func newPlace(t testing.TB) *place { return placeIn(t, t.TempDir()) }

// quickPlace returns a place in memory if possible, for tests that do not depend on the file system.
func quickPlace(t testing.TB) *place {
	base := elsewhere(t)
	must(t, os.Mkdir(base, 0o700))
	return placeIn(t, base)
}

func placeIn(t testing.TB, base string) *place {
	p := &place{t: t, dir: filepath.Join(base, "tree"), state: filepath.Join(base, "state"), store: newStore(), now: time.Now()}
	must(t, os.Mkdir(p.dir, 0o755))
	must(t, os.Mkdir(p.state, 0o700))
	t.Cleanup(func() { must(t, rooted.RemoveAll(p.dir)) })
	return p
}

func me() Owners {
	return Owners{Agent: User{os.Getuid(), os.Getgid()}, Boxd: User{os.Getuid() + 1, os.Getgid() + 1}}
}

func (p *place) config() Config {
	c := Config{
		Dir: p.dir, State: p.state, Sink: p.store, Source: p.store, Last: p.last, Owners: me(), Now: func() time.Time { return p.now },
		Bounds: rooted.Bounds{Entries: 1_000_000, Depth: MaxDepth},
	}
	if p.change != nil {
		p.change(&c)
	}
	return c
}

// scan scans the tree, between runs after Live.
func (p *place) scan(between ...func(*Scan)) Result {
	p.t.Helper()
	s := NewScan(p.config())
	defer s.Close()
	must(p.t, s.Live(p.t.Context()))
	for _, f := range between {
		f(s)
	}
	r, err := s.Finish(p.t.Context())
	must(p.t, err)
	must(p.t, r.Save())
	p.last = r.Root
	return r
}

// fresh scans the tree without a cache.
func (p *place) fresh() Result {
	p.t.Helper()
	q := *p
	q.last, q.store = pack.ID{}, newStore()
	q.state += "-fresh"
	must(p.t, os.MkdirAll(q.state, 0o700))
	return q.scan()
}

func (p *place) at(name string) string { return filepath.Join(p.dir, name) }

func (p *place) write(name, content string) {
	p.t.Helper()
	must(p.t, os.MkdirAll(filepath.Dir(p.at(name)), 0o755))
	must(p.t, os.WriteFile(p.at(name), []byte(content), 0o644))
}

// settle waits until the file system's clock is past the window in which a file is read again.
func (p *place) settle() {
	p.t.Helper()
	first, err := rooted.Touch(filepath.Join(p.state, "settle"))
	must(p.t, err)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for now := first; now.Sub(first) <= racyWindow; <-tick.C {
		now, err = rooted.Touch(filepath.Join(p.state, "settle"))
		must(p.t, err)
	}
}

// elsewhere returns the path of a directory to be, on a file system in memory if it has extended attributes:
// there a sync takes no time, and a restored tree must be the same as on a disk.
func elsewhere(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hf-tree")
	if err == nil && unix.Setxattr(dir, "user.a", nil, 0) != nil {
		must(t, os.Remove(dir))
		err = unix.ENOTSUP
	}
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { must(t, rooted.RemoveAll(dir)) })
	return filepath.Join(dir, "other")
}

// describe reads a whole tree by other means than a scan, one line for each entry. Holes are listed
// as they are found in files of more than 64 KiB.
func describe(t testing.TB, dir string) map[string]string {
	t.Helper()
	out, first := map[string]string{}, map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		var st syscall.Stat_t
		must(t, syscall.Lstat(path, &st))
		line := fmt.Sprintf("%o %d:%d %d", st.Mode, st.Uid, st.Gid, st.Mtim.Nano())
		switch st.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			data, err := os.ReadFile(path)
			must(t, err)
			line += fmt.Sprintf(" %d %x holes %v", len(data), sha256.Sum256(data), holes(t, path, st.Size))
		case syscall.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			line += " to " + target
		}
		if st.Nlink > 1 && st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			if f, ok := first[st.Ino]; ok {
				line += " as " + f
			} else {
				first[st.Ino] = rel
			}
		}
		if st.Mode&syscall.S_IFMT != syscall.S_IFLNK {
			line += xattrsOf(t, path)
		}
		out[rel] = line
		return nil
	}))
	return out
}

func xattrsOf(t testing.TB, path string) (line string) {
	buf := make([]byte, 64<<10)
	n, err := unix.Listxattr(path, buf)
	must(t, err)
	names := strings.Split(string(buf[:n]), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, "user.") {
			n, err := unix.Getxattr(path, name, buf)
			must(t, err)
			line += fmt.Sprintf(" %s=%q", name, buf[:n])
		}
	}
	return line
}

// holes returns the aligned blocks of 64 KiB of a large file that lie in holes.
func holes(t testing.TB, path string, size int64) (out []int64) {
	if size <= maxWhole {
		return nil
	}
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	for off := int64(0); off+holeBlock <= size; off += holeBlock {
		at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO || err == nil && at >= off+holeBlock {
			out = append(out, off)
		}
	}
	return out
}

func sameTree(t testing.TB, got, want map[string]string) {
	t.Helper()
	n := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			if n++; n < 8 {
				t.Errorf("%q is\n  %s\nwant\n  %s", name, got[name], want[name])
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q was not in the tree: %s", name, got[name])
		}
	}
}

// grower makes random trees and changes them.
type grower struct {
	t    testing.TB
	r    *rand.Rand
	dir  string
	dirs []string // paths below dir
	all  []string
}

var someNames = []string{"a", "b", "a.b", "a b", "ü", "\xff\xfe", "-", "*", "x\ny", ".git", "a-", "z\x01", "\x01", strings.Repeat("n", 255)}

func (g *grower) name() string {
	if g.r.IntN(3) == 0 {
		return someNames[g.r.IntN(len(someNames))]
	}
	return fmt.Sprintf("f%d", g.r.IntN(60))
}

func (g *grower) at(rel string) string { return filepath.Join(g.dir, rel) }

// list finds what is in the tree now.
func (g *grower) list() {
	g.dirs, g.all = nil, nil
	must(g.t, filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
		must(g.t, err)
		rel, _ := filepath.Rel(g.dir, path)
		if d.IsDir() {
			g.dirs = append(g.dirs, rel)
		}
		if rel != "." {
			g.all = append(g.all, rel)
		}
		return nil
	}))
}

func (g *grower) content() []byte {
	size := g.r.IntN(300)
	switch g.r.IntN(20) {
	case 0:
		size = 0
	case 1:
		size = maxWhole - 1 + g.r.IntN(3)
	case 2:
		size = g.r.IntN(300 << 10)
	case 3:
		size = g.r.IntN(30 << 10)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(g.r.Uint32() >> 16)
	}
	return b
}

// step makes one random change. Steps that the tree does not allow do nothing.
func (g *grower) step() {
	dir := g.dirs[g.r.IntN(len(g.dirs))]
	to := g.at(filepath.Join(dir, g.name()))
	some := to
	if len(g.all) > 0 {
		some = g.at(g.all[g.r.IntN(len(g.all))])
	}
	info, err := os.Lstat(some)
	file := err == nil && info.Mode().IsRegular()
	switch g.r.IntN(16) {
	case 0, 1, 2, 3, 4:
		if _, err := os.Lstat(to); err != nil {
			must(g.t, os.WriteFile(to, g.content(), 0o644))
		}
	case 5, 6:
		if os.Mkdir(to, 0o755) == nil {
			rel, _ := filepath.Rel(g.dir, to)
			g.dirs = append(g.dirs, rel)
		}
	case 7:
		_ = os.Symlink([]string{"a", "../..", "/etc/passwd", strings.Repeat("l", 4000)}[g.r.IntN(4)], to)
	case 8:
		if file {
			_ = os.Link(some, to)
		}
	case 9:
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			must(g.t, os.Chmod(some, fs.FileMode(g.r.IntN(0o1000))|[]fs.FileMode{0, fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky}[g.r.IntN(4)]))
		}
	case 10:
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			must(g.t, unix.Setxattr(some, fmt.Sprintf("user.%d", g.r.IntN(3)), g.content()[:0:0], 0))
			must(g.t, unix.Setxattr(some, "user.v", []byte(fmt.Sprint(g.r.IntN(1000))), 0))
		}
	case 11:
		if err == nil {
			ts := []unix.Timespec{{Sec: 1}, {Sec: int64(g.r.IntN(1 << 31)), Nsec: int64(g.r.IntN(1e9))}}
			must(g.t, unix.UtimesNanoAt(unix.AT_FDCWD, some, ts, unix.AT_SYMLINK_NOFOLLOW))
		}
	case 12:
		if f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			must(g.t, f.Truncate(int64(g.r.IntN(1<<20))))
			for range g.r.IntN(3) {
				_, err := f.WriteAt(g.content(), int64(g.r.IntN(1<<20)))
				must(g.t, err)
			}
			must(g.t, f.Close())
		}
	case 13:
		if file {
			f, err := os.OpenFile(some, os.O_WRONLY, 0)
			must(g.t, err)
			_, err = f.WriteAt(g.content(), int64(g.r.IntN(int(info.Size())+1)))
			must(g.t, err)
			must(g.t, f.Close())
		}
	case 14:
		if err == nil && g.r.IntN(2) == 0 {
			must(g.t, os.RemoveAll(some))
			g.list()
		}
	case 15:
		if err == nil && os.Rename(some, to) == nil {
			g.list()
		}
	}
}

// grow makes n changes.
func (g *grower) grow(n int) {
	g.list()
	for range n {
		if g.r.IntN(4) == 0 {
			g.list()
		}
		g.step()
	}
}

func asUser(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}
