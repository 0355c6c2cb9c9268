package tree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// looker looks at a tree as a server does: by a memo, and else by a scan.
type looker struct {
	*place
	memo *statcache.Memo
	// quick counts the looks without a scan.
	quick int
	// inodes are those of the tree when it rested.
	inodes []uint64
}

func (l *looker) look() (r Result, quick bool) {
	l.t.Helper()
	if l.memo != nil {
		if next := l.memo.Look(l.dir, l.now); next != nil {
			l.memo = next
			l.quick++
			return Result{Root: next.Head.Root, Same: true}, true
		}
	}
	c := l.config()
	c.Memo = l.memo
	s := NewScan(c)
	defer s.Close()
	must(l.t, s.Live(l.t.Context()))
	r, err := s.Finish(l.t.Context())
	must(l.t, err)
	must(l.t, r.Save())
	l.last, l.memo = r.Root, s.Memo()
	return r, false
}

// rest looks until there is a memo.
func (l *looker) rest() {
	l.t.Helper()
	l.settle()
	for range 4 {
		if l.look(); l.memo != nil {
			l.inodes = nil
			for e, err := range rooted.Walk(l.t.Context(), l.dir, l.config().Bounds) {
				must(l.t, err)
				l.inodes = append(l.inodes, e.Ino)
			}
			return
		}
	}
	l.t.Fatal("no memo of a tree at rest")
}

// unchanged reports whether a look needs no scan, while no file is due to be read again.
func (l *looker) unchanged() bool {
	due := func(ino uint64) bool { return statcache.NextRehash(l.memo.Head, l.now).Due(ino) }
	for slices.ContainsFunc(l.inodes, due) {
		l.memo.Head.Cursor += 1 << 32 / statcache.RehashScans
	}
	return l.memo.Look(l.dir, l.now) != nil
}

// small fills a place with a few entries of each type.
func small(p *place) {
	p.t.Helper()
	for i := range 4 {
		p.write(fmt.Sprint("f", i), fmt.Sprint("content ", i))
		p.write(fmt.Sprint("d/e/g", i), fmt.Sprint("content ", i))
	}
	must(p.t, os.Mkdir(p.at("empty"), 0o755))
	must(p.t, os.Symlink("f0", p.at("d/link")))
	must(p.t, os.Link(p.at("f3"), p.at("d/hard")))
	must(p.t, os.Link(p.at("f2"), filepath.Join(filepath.Dir(p.dir), "outside")))
}

// rewrite changes the content of a file, and neither its size nor its modification time.
func rewrite(p *place, name string, n int) {
	var st syscall.Stat_t
	must(p.t, syscall.Stat(p.at(name), &st))
	f, err := os.OpenFile(p.at(name), os.O_WRONLY, 0)
	must(p.t, err)
	_, err = f.WriteAt([]byte{'A' + byte(n%26)}, st.Size-1)
	must(p.t, err)
	must(p.t, f.Close())
	p.restamp(name, st)
}

// again makes a copy of a file or directory with the same content and attributes, and puts it in its place.
func again(p *place, path string) {
	temp := filepath.Join(filepath.Dir(p.dir), "again")
	must(p.t, os.MkdirAll(temp, 0o755))
	must(p.t, Restore(p.t.Context(), p.store, p.everything(), filepath.Join(temp, "tree"), me()))
	rel, err := filepath.Rel(p.dir, path)
	must(p.t, err)
	must(p.t, os.Rename(path, filepath.Join(temp, "was")))
	must(p.t, os.Rename(filepath.Join(temp, "tree", rel), path))
	must(p.t, os.RemoveAll(temp))
}

// changes are the ways in which a small tree is changed. Those that the tree does not allow at the moment do nothing.
var changes = map[string]func(p *place, n int){
	"content":          func(p *place, n int) { rewrite(p, "f0", n) },
	"content below":    func(p *place, n int) { rewrite(p, "d/e/g1", n) },
	"longer":           func(p *place, n int) { p.write("d/e/g2", strings.Repeat("x", n+20)) },
	"chmod":            func(p *place, n int) { must(p.t, os.Chmod(p.at("f1"), os.FileMode(0o600|n%64))) },
	"chmod of the top": func(p *place, n int) { must(p.t, os.Chmod(p.dir, os.FileMode(0o700|n%64))) },
	"chmod of a directory": func(p *place, n int) {
		must(p.t, os.Chmod(p.at("empty"), os.FileMode(0o700|n%64)))
	},
	"new file":          func(p *place, n int) { p.write(fmt.Sprint("new", n%4), "new") },
	"new file below":    func(p *place, n int) { p.write(fmt.Sprint("empty/new", n%4), "new") },
	"new file is moved": func(p *place, n int) { _ = os.Rename(p.at(fmt.Sprint("new", n%4)), p.at("d/e/moved")) },
	"removed":           func(p *place, n int) { must(p.t, os.RemoveAll(p.at(fmt.Sprint("new", n%4)))) },
	"removed below":     func(p *place, n int) { must(p.t, os.RemoveAll(p.at(fmt.Sprint("empty/new", n%4)))) },
	"renamed": func(p *place, _ int) {
		must(p.t, unix.Renameat2(unix.AT_FDCWD, p.at("d/e/g0"), unix.AT_FDCWD, p.at("d/e/g3"), unix.RENAME_EXCHANGE))
	},
	"directories exchanged": func(p *place, _ int) {
		must(p.t, unix.Renameat2(unix.AT_FDCWD, p.at("d/e"), unix.AT_FDCWD, p.at("empty"), unix.RENAME_EXCHANGE))
		must(p.t, unix.Renameat2(unix.AT_FDCWD, p.at("d/e"), unix.AT_FDCWD, p.at("empty"), unix.RENAME_EXCHANGE))
	},
	"symlink": func(p *place, n int) {
		must(p.t, os.Remove(p.at("d/link")))
		must(p.t, os.Symlink(fmt.Sprint("f", n%4), p.at("d/link")))
	},
	"symlink in place of a directory": func(p *place, n int) {
		must(p.t, os.Rename(p.at("empty"), p.at("aside")))
		must(p.t, os.Symlink("aside", p.at("empty")))
		if n%2 == 0 {
			p.look(p.t)
		}
		must(p.t, os.Remove(p.at("empty")))
		must(p.t, os.Rename(p.at("aside"), p.at("empty")))
	},
	"hard link": func(p *place, n int) { _ = os.Link(p.at("f1"), p.at(fmt.Sprint("empty/hard", n%2))) },
	"hard link outside removed": func(p *place, n int) {
		out := filepath.Join(filepath.Dir(p.dir), "outside")
		must(p.t, os.RemoveAll(out))
		must(p.t, os.Link(p.at("f2"), out))
		must(p.t, os.WriteFile(out, fmt.Appendf(nil, "content %c", 'a'+n%26), 0o644))
	},
	"attribute": func(p *place, n int) { must(p.t, unix.Setxattr(p.at("d/e/g3"), "user.a", []byte{byte(n)}, 0)) },
	"attribute of a directory": func(p *place, n int) {
		must(p.t, unix.Setxattr(p.at("d/e"), "user.a", []byte{byte(n)}, 0))
	},
	"touch": func(p *place, n int) { must(p.t, os.Chtimes(p.at("f2"), time.Time{}, time.Unix(int64(n), 0))) },
	"touch of the top": func(p *place, n int) {
		must(p.t, os.Chtimes(p.dir, time.Time{}, time.Unix(int64(n), 0)))
	},
	"directory again": func(p *place, _ int) { again(p, p.at("d")) },
	"top again":       func(p *place, _ int) { again(p, p.dir) },
	"top of another": func(p *place, n int) {
		again(p, p.dir)
		rewrite(p, "f0", n)
	},
}

// look is called by a change in the middle of it, for its accesses only.
func (p *place) look(t testing.TB) {
	_, err := os.ReadDir(p.dir)
	must(t, err)
}

// TestLookFindsChanges: after each kind of change a look leaves the tree to a scan, and after none it does not.
func TestLookFindsChanges(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		l := &looker{place: newPlace(t)}
		small(l.place)
		for i := range 4 {
			l.write(fmt.Sprint("new", i), "")
			l.write(fmt.Sprint("empty/new", i), "")
		}
		if l.rest(); !l.unchanged() || l.memo.Head.Root != l.last {
			t.Fatal("a tree at rest is scanned")
		}
		changes[name](l.place, 1)
		if l.unchanged() {
			t.Errorf("%s: the tree is taken for unchanged", name)
		}
		if r, _ := l.look(); r.Root != l.everything() {
			t.Errorf("%s: the scan missed it", name)
		}
	}
}

// TestLooksMissNothing: whatever changes, in whichever order and how quickly, each look has the root that a scan has
// which reads everything.
func TestLooksMissNothing(t *testing.T) { looks(t, 150) }

// TestLooksMissNothingLong does the same with more looks.
func TestLooksMissNothingLong(t *testing.T) {
	testkit.Long(t)
	looks(t, testkit.Rounds(2000))
}

func looks(t *testing.T, rounds int) {
	names := slices.Sorted(maps.Keys(changes))
	l := &looker{place: newPlace(t)}
	small(l.place)
	r := rand.New(rand.NewPCG(7, 7))
	checked, found := 0, map[string]bool{}
	for round := range rounds {
		if r.IntN(2) == 0 {
			l.rest()
		}
		for range r.IntN(3) {
			name := names[r.IntN(len(names))]
			if l.memo != nil {
				found[name] = true
			}
			changes[name](l.place, round)
			if r.IntN(3) == 0 {
				l.look() // perhaps within the tick of the change
			}
		}
		got, quick := l.look()
		if want := l.everything(); got.Root != want {
			t.Fatalf("round %d: a change was missed, without a scan: %v", round, quick)
		}
		if quick {
			checked++
		}
		l.now = l.now.Add(time.Duration(r.Int64N(int64(10 * time.Minute))))
	}
	t.Logf("%d looks without a scan, %d of them compared; %d kinds of change after a memo was made", l.quick, checked, len(found))
	if checked < rounds/10 || rounds >= 1000 && len(found) < len(names) {
		t.Errorf("%d looks of %d were without a scan, and %d kinds of change of %d were tried", checked, rounds, len(found), len(names))
	}
}

// TestLookReadsAgain: with looks, too, a file whose content changed without its stat is read within 50 of them, or within a
// day, even if memos are lost.
func TestLookReadsAgain(t *testing.T) {
	for name, step := range map[string]time.Duration{"looks": 0, "time": time.Hour, "time, with lost memos": time.Hour} {
		l := &looker{place: newPlace(t)}
		want := []string{"d/a", "d/b", "f0", "f1", "f2", "f3"}
		for _, name := range want {
			l.write(name, "before")
		}
		l.rest()
		changeSilently(l, want)
		l.settle()
		l.quick = 0
		looks, wrong := statcache.RehashScans, map[string]bool{}
		if step > 0 {
			looks = int(statcache.RehashTime / step)
		}
		for i := range looks {
			if i%5 == 4 && name == "time, with lost memos" {
				l.memo = nil
			}
			l.now = l.now.Add(step)
			r, _ := l.look()
			for _, path := range r.Mismatches {
				wrong[path] = true
			}
		}
		if got := slices.Sorted(maps.Keys(wrong)); !slices.Equal(got, want) {
			t.Errorf("by %s: of %q only %q were read in %d looks", name, want, got, looks)
		}
		if l.quick == 0 {
			t.Errorf("by %s: each look was a scan", name)
		}
		t.Logf("by %s: %d looks of %d without a scan", name, l.quick, looks)
	}
}

// changeSilently changes files, and the records of them, as if a disk had changed their content by itself.
func changeSilently(l *looker, names []string) {
	for i, name := range names {
		rewrite(l.place, name, i)
	}
	c, err := statcache.Open(l.state, l.last)
	must(l.t, err)
	defer c.Close()
	base := statcache.NewRun(l.state)
	m := statcache.Merge(c.Runs()...)
	for err = m.There(); m.Rec != nil && err == nil; err = m.There() {
		if slices.Contains(names, statcache.Path(m.Rec.Key)) && !m.Rec.Is(statcache.End) {
			var st syscall.Stat_t
			must(l.t, syscall.Stat(l.at(statcache.Path(m.Rec.Key)), &st))
			m.Rec.Stat.Ctime = st.Ctim.Nano()
		}
		must(l.t, base.Add(m.Rec))
	}
	must(l.t, err)
	must(l.t, c.Replace(base, c.Head))
	l.memo = nil
}

// TestNoMemo: there is no memo of a tree that is large, or of which something was not stored or may be changing.
func TestNoMemo(t *testing.T) {
	for name, fill := range map[string]func(p *place){
		"many entries": func(p *place) {
			for i := range 64 {
				p.write(fmt.Sprint(i), "")
			}
		},
		"long paths": func(p *place) {
			for i := range 30 {
				p.write(fmt.Sprint(strings.Repeat("n", 250), i), "")
			}
		},
		"a FIFO": func(p *place) { must(p.t, unix.Mkfifo(p.at("fifo"), 0o600)) },
	} {
		l := &looker{place: newPlace(t)}
		fill(l.place)
		l.settle()
		for range 3 {
			if l.look(); l.memo != nil {
				t.Errorf("%s: a memo", name)
			}
		}
	}
	l := &looker{place: newPlace(t)}
	l.write("f", "")
	for range 3 {
		if l.look(); l.memo != nil && time.Since(l.now) < racyWindow {
			t.Error("a memo of a file that may have changed after it was read")
		}
	}
	for i := range 62 {
		l.write(fmt.Sprint(i), "")
	}
	if l.rest(); l.memo.Size() > 8<<10 {
		t.Errorf("%d bytes", l.memo.Size())
	}
}

// TestLookSeesMounts: a look leaves it to a scan if something is mounted in the tree or over it, even the same file or
// directory.
func TestLookSeesMounts(t *testing.T) {
	l := &looker{place: newPlace(t)}
	small(l.place)
	l.rest()
	for _, name := range []string{"f0", "d/e/g1", "empty", "d/e", "."} {
		from := l.at(name)
		if name == "." { // a bind mount of the same directory is the same tree
			from = t.TempDir()
		}
		if err := unix.Mount(from, l.at(name), "", unix.MS_BIND, ""); err != nil {
			t.Logf("no right to mount here, nothing tested: %v", err)
			return
		}
		seen := !l.unchanged()
		must(t, unix.Unmount(l.at(name), unix.MNT_DETACH))
		if !seen {
			t.Errorf("the mount at %s is not seen", name)
		}
		if !l.unchanged() {
			t.Errorf("%s has changed by the mount", name)
		}
	}
}

// TestRacyDirectory: a directory that changed between the walk's look at it and the reading of its attributes is not taken for
// unchanged later.
func TestRacyDirectory(t *testing.T) {
	p := newPlace(t)
	p.write("d/f", "")
	p.settle()
	p.change = func(c *Config) {
		c.Exclude = func(path string, dir bool) bool {
			if dir {
				p.write(path+"/late", "")
			}
			return false
		}
	}
	p.scan()
	c, err := statcache.Open(p.state, p.last)
	must(t, err)
	defer c.Close()
	m := statcache.Merge(c.Runs()...)
	for err = m.There(); m.Rec != nil && err == nil; err = m.There() {
		if statcache.Path(m.Rec.Key) == "d" && !m.Rec.Is(statcache.End) && !m.Rec.Is(statcache.Again) {
			t.Error("the directory is not read again")
		}
	}
	must(t, err)
}
