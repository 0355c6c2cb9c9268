package tree

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestASH21_RepositoryWithOddFiles: a git repository with a lock file, links, modes, an empty directory, odd names
// and files that cannot be stored is scanned to its end; what can be stored comes back the same, the rest is named.
func TestASH21_RepositoryWithOddFiles(t *testing.T) {
	p := newPlace(t)
	p.write("a", "text")
	p.write("d/run.sh", "#!/bin/sh\n")
	p.write("\xff\nodd name", "x")
	p.write("secret", "x")
	must(t, os.Chmod(p.at("d/run.sh"), 0o751))
	must(t, os.Chmod(p.at("secret"), 0))
	must(t, os.Mkdir(p.at("empty"), 0o700))
	must(t, os.Symlink("d/run.sh", p.at("link")))
	must(t, os.Symlink("/nowhere", p.at("dangling")))
	must(t, os.Link(p.at("a"), p.at("other")))
	git(t, p.dir, nil, "init", "-q")
	git(t, p.dir, nil, "add", "a", "d", "link")
	git(t, p.dir, nil, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one")
	p.write(".git/refs/heads/other.lock", "")
	want := describe(t, p.dir)
	must(t, unix.Mkfifo(p.at("fifo"), 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: p.at("socket")}))
	want["."] = describe(t, p.dir)["."]

	r := p.scan()
	if got := fmt.Sprint(r.Skipped); r.SkippedCount != 2 || !strings.Contains(got, "{fifo a FIFO}") || !strings.Contains(got, "{socket a socket}") {
		t.Errorf("skipped %s", got)
	}
	other := elsewhere(t)
	must(t, Restore(t.Context(), p.store, r.Root, other, me()))
	sameTree(t, describe(t, other), want)
	git(t, other, nil, "fsck", "--strict")
	git(t, other, nil, "diff", "--exit-code", "HEAD")
}

// TestASH22_SmallEditWritesLittle: 4 KB that change in a tree of 10,000 files, in a flat directory of as many, or in
// a large file store little more than what changed.
//
// DOC-34.
func TestASH22_SmallEditWritesLittle(t *testing.T) {
	p := quickPlace(t)
	r := rand.New(rand.NewPCG(22, 1))
	for i := range 10_000 {
		p.write(fmt.Sprintf("tree/%d/%d", i%100, i/100), fmt.Sprint(i))
		p.write(fmt.Sprintf("flat/%d", i), fmt.Sprint(i))
	}
	large := random(r, 32<<20)
	p.write("large", string(large))
	p.scan()
	for name, most := range map[string]int64{"tree/5/5": 4096*13/10 + 64<<10, "flat/5000": 4096*13/10 + 64<<10, "large": 1 << 20} {
		edit := random(r, 4096)
		if name == "large" {
			copy(large[15<<20:], edit)
			edit = large
		}
		before := p.store.bytes
		p.write(name, string(edit))
		if res := p.scan(); res.Same || p.content(name) != string(edit) {
			t.Errorf("%s: %+v", name, res)
		}
		if wrote := p.store.bytes - before; wrote < 4096 || wrote > most {
			t.Errorf("%s: 4 KB store %d bytes, at most %d are allowed", name, wrote, most)
		}
	}
}

// TestASH22_OneGigabyte: 4 KB that change in a file of 1 GB write at most 1 MB, and the file is restored as it is.
func TestASH22_OneGigabyte(t *testing.T) {
	testkit.Long(t)
	p := newPacked(t)
	change := oneGigabyte(t, p)
	for n := range 3 {
		change(n)
		p.settle()
		p.wrote = 0
		if r := p.scan(); r.Same || p.wrote < 4<<10 || p.wrote > 1<<20 {
			t.Errorf("%+v, %d bytes written", r, p.wrote)
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, Restore(t.Context(), p.packs.In(p.known), p.last, copied, p.config().Owners))
	if out, err := exec.Command("cmp", p.at("large"), filepath.Join(copied, "large")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
