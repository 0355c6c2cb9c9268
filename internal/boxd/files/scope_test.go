package files

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// scoped is a box with an open and a denied tree, and links between them.
func scoped(t *testing.T) (box, wire.Scope) {
	t.Helper()
	b := newBox(t)
	b.put(t, "open/a.txt", "needle open")
	b.put(t, "open/sub/secret/k.txt", "needle nested")
	b.put(t, "secret/k.txt", "needle secret")
	for link, to := range map[string]string{"open/in": "../secret", "open/file": "../secret/k.txt", "open/new": "../secret/new.txt", "open/loop": "loop", "out": "open"} {
		if err := os.Symlink(to, b.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	return b, wire.Scope{Denied: []string{b.path("secret"), b.path("open/sub/secret")}}
}

// TestSDKK14_FilesAreCheckedWhereTheyLie: reading, writing and editing are held to
// where a name leads, in every way a link can lead there.
func TestSDKK14_FilesAreCheckedWhereTheyLie(t *testing.T) {
	b, s := scoped(t)
	for path, ok := range map[string]bool{
		"open/a.txt": true, "out/a.txt": true, "secret/k.txt": false, "open/in/k.txt": false, "open/file": false, "out/in/k.txt": false, "open/sub/secret/k.txt": false, "open/../secret/k.txt": false,
	} {
		var out bytes.Buffer
		_, err := b.Within(s).Read(wire.ReadRequest{Path: path}, &out)
		if (err == nil) != ok || !ok && (!holdfast.IsKind(err, holdfast.KindDenied) || out.Len() > 0) {
			t.Errorf("read %s: %v, %q", path, err, out.String())
		}
		b.put(t, "open/a.txt", "needle open")
		_, err = b.Within(s).Edit(wire.EditRequest{Path: path, Old: "needle", New: "thread"})
		if (err == nil) != ok {
			t.Errorf("edit %s: %v", path, err)
		}
	}
	for path, ok := range map[string]bool{
		"open/b.txt": true, "open/deep/er/b.txt": true, "secret/b.txt": false, "open/in/b.txt": false, "open/in/deep/b.txt": false, "open/file": false, "open/new": false, "open/sub/secret/b.txt": false,
	} {
		_, err := b.Within(s).Write(wire.WriteRequest{Path: path, Parents: true}, strings.NewReader("x"))
		if (err == nil) != ok || !ok && !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("write %s: %v", path, err)
		}
	}
	if names, _ := filepath.Glob(b.path("secret/*")); len(names) != 1 || b.get(t, "secret/k.txt") != "needle secret" {
		t.Errorf("the denied tree changed: %q", names)
	}
	// What is allowed alone is held to the same way.
	only := wire.Scope{Within: [][]string{{"/"}, {b.path("open")}}}
	for path, ok := range map[string]bool{"open/a.txt": true, "out/a.txt": true, "open/in/k.txt": false, "secret/k.txt": false} {
		if _, err := b.Within(only).Read(wire.ReadRequest{Path: path}, new(bytes.Buffer)); (err == nil) != ok {
			t.Errorf("read %s within: %v", path, err)
		}
	}
	if _, err := b.Within(s).Read(wire.ReadRequest{Path: "open/loop"}, new(bytes.Buffer)); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a loop of links: %v", err)
	}
	b.clean(t)
}

// TestSDKK14_LinksThatMoveMeanwhile: while a directory turns into a link to the
// denied tree and back, what is read is never from there and nothing is written
// there.
func TestSDKK14_LinksThatMoveMeanwhile(t *testing.T) {
	b, s := scoped(t)
	b.put(t, "flip/k.txt", "harmless")
	// The exact moment: a walk has begun in a directory that turns into a link; the files
	// it opens below still lie where it began. A parent that turned into a link is judged
	// where it was opened.
	f := b.Within(s)
	w := f.newWalk()
	must(t, w.begin("test", "", b.ws))
	defer w.end()
	dir, name, err := f.door.parent("test", "flip/new.txt", b.path("flip/new.txt"))
	must(t, err)
	defer unix.Close(dir)
	must(t, errors.Join(os.Rename(b.path("flip"), b.path("held")), os.Symlink("secret", b.path("flip"))))
	if file, err := regularBelow("test", "flip/k.txt", w.top, "flip/k.txt"); err == nil {
		file.close()
		t.Error("a directory that turned into a link is followed")
	}
	must(t, unix.Mkdirat(dir, name, 0o755))
	if _, err := os.Lstat(b.path("held/new.txt")); err != nil {
		t.Errorf("what was judged is not what is used: %v", err)
	}
	must(t, os.Remove(b.path("held/new.txt")))
	if fd, _, err := b.Within(s).door.parent("test", "flip/new.txt", b.path("flip/new.txt")); err == nil {
		_ = unix.Close(fd)
		t.Error("a directory to write in that turned into a link is followed")
	}
	must(t, errors.Join(os.Remove(b.path("flip")), os.Rename(b.path("held"), b.path("flip"))))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Each step may fail where the box's own work got in between.
			_ = os.Rename(b.path("flip"), b.path("held"))
			_ = os.Symlink("secret", b.path("flip"))
			_ = os.Remove(b.path("flip"))
			_ = os.Rename(b.path("held"), b.path("flip"))
		}
	})
	defer wg.Wait()
	defer close(stop)
	read, refused := 0, 0
	for i := 0; i < 5000 && (i < 500 || read == 0 || refused == 0); i++ {
		var out bytes.Buffer
		_, err := b.Within(s).Read(wire.ReadRequest{Path: "flip/k.txt"}, &out)
		switch {
		case err != nil:
			refused++
		case out.String() == "harmless":
			read++
		default:
			t.Fatalf("round %d: %q", i, out.String())
		}
		_, _ = b.Within(s).Write(wire.WriteRequest{Path: "flip/new.txt"}, strings.NewReader("x"))
		if _, err := os.Lstat(b.path("secret/new.txt")); err == nil {
			t.Fatalf("round %d: written into the denied tree", i)
		}
	}
	if read == 0 || refused == 0 {
		t.Logf("%d were read, %d refused", read, refused)
	}
}

// TestSDKK15_WalkersCheckEveryEntry: listing and searching pass over what is denied,
// below the directory that was named and where it leads.
func TestSDKK15_WalkersCheckEveryEntry(t *testing.T) {
	b, s := scoped(t)
	glob := func(path, pattern string) []string {
		t.Helper()
		ans, err := b.Within(s).Glob(wire.GlobRequest{Path: path, Pattern: pattern})
		if err != nil {
			t.Fatalf("glob %s: %v", path, err)
		}
		return ans.Paths
	}
	for _, path := range []string{"", "open", "out"} {
		for _, p := range glob(path, "**/*.txt") {
			if strings.Contains(p, "secret") || !strings.HasPrefix(p, b.path(path)) {
				t.Errorf("glob %q shows %s", path, p)
			}
		}
		ans, err := b.Within(s).Grep(wire.GrepRequest{Path: path, Pattern: "needle", Mode: "content"})
		if err != nil || len(ans.Matches) != 1 || !strings.HasSuffix(ans.Matches[0].Path, "/a.txt") || !strings.HasPrefix(ans.Matches[0].Path, b.path(path)) {
			t.Errorf("grep %q: %+v, %v", path, ans.Matches, err)
		}
	}
	list, err := b.Within(s).List(wire.ListRequest{})
	if err != nil || len(list.Entries) != 2 {
		t.Errorf("list: %+v, %v", list.Entries, err)
	}
	for _, path := range []string{"secret", "open/in", "out/in", "open/sub/secret"} {
		_, gerr := b.Within(s).Glob(wire.GlobRequest{Path: path, Pattern: "*"})
		_, serr := b.Within(s).Grep(wire.GrepRequest{Path: path, Pattern: "needle"})
		_, lerr := b.Within(s).List(wire.ListRequest{Path: path})
		for _, err := range []error{gerr, serr, lerr} {
			if !holdfast.IsKind(err, holdfast.KindDenied) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, pattern := range []string{"open/in/*.txt", "open/sub/secret/*", "secret/k.txt"} {
		if ans, err := b.Within(s).Glob(wire.GlobRequest{Pattern: pattern}); err == nil && len(ans.Paths) > 0 || err != nil && !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("a pattern that begins there: %q, %v", ans.Paths, err)
		}
	}
	if _, err := b.Within(s).Grep(wire.GrepRequest{Path: "open/file", Pattern: "needle"}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("one file behind a link: %v", err)
	}
}
