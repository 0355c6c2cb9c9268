package hostgit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// git runs git in a directory without the user's configuration.
func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	settings := []string{"-c", "safe.directory=*", "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@example.com"}
	cmd := exec.Command("git", append(append(settings, "-C", dir), args...)...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(dir, "..", "nohome"), "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// listed makes a repository whose index lists files and the given submodules, which need not exist.
func listed(t testing.TB, format string, links ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo")
	git(t, filepath.Dir(dir), "init", "-q", "--object-format="+format, dir)
	for _, name := range []string{"a", "sub/file", "sub/file.longer", "z" + strings.Repeat("y", 200)} {
		write(t, filepath.Join(dir, name), name)
	}
	git(t, dir, "add", ".")
	hash := strings.Repeat("1", map[string]int{"sha1": 40, "sha256": 64}[format])
	for _, l := range links {
		git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+hash+","+l)
	}
	return dir
}

func indexOf(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestIndexOfGit: of each version and hash of an index that git writes, the submodules are listed.
func TestIndexOfGit(t *testing.T) {
	links := []string{"sub/in", "sub/in2", "vendor/lib", "x*[y"}
	for _, format := range []string{"sha1", "sha256"} {
		dir := listed(t, format, links...)
		for _, version := range []string{"2", "3", "4"} {
			git(t, dir, "update-index", "--index-version", version)
			if version == "3" { // git writes version 3 only if an entry has one of its flags
				git(t, dir, "update-index", "--skip-worktree", "vendor/lib", "a")
			}
			b := indexOf(t, dir)
			if got := binary.BigEndian.Uint32(b[4:]); version != "2" && got < 3 {
				t.Errorf("git wrote version %d, not %s", got, version)
			}
			out, err := readIndex(bytes.NewReader(b), int64(len(b)))
			if err != nil || !slices.Equal(out.links, links) {
				t.Errorf("%s, version %s: %q, %v", format, version, out.links, err)
			}
		}
	}
}

// TestIndexRefused: an index that is cut, longer or of another version is refused; so are too many submodules.
func TestIndexRefused(t *testing.T) {
	b := indexOf(t, listed(t, "sha1", "sub/in"))
	read := func(b []byte) error {
		_, err := readIndex(bytes.NewReader(b), int64(len(b)))
		return err
	}
	for n := range len(b) {
		if read(b[:n]) == nil {
			t.Errorf("the first %d of %d bytes are an index", n, len(b))
		}
	}
	if read(append(slices.Clone(b), 0)) == nil {
		t.Error("an index with one byte more is read")
	}
	for at, v := range map[int]byte{7: 5, 0: 'X', 11: 200, bytes.Index(b, []byte("sub/in\x00")): 0, bytes.Index(b, []byte("sub/in\x00")) + 1: '/'} {
		bad := slices.Clone(b)
		if bad[at] = v; at == bytes.Index(b, []byte("sub/in\x00"))+1 {
			bad[at-1] = '/'
		}
		if read(bad) == nil {
			t.Errorf("an index with %q at byte %d is read", v, at)
		}
	}
	many := []byte("DIRC\x00\x00\x00\x02\x00\x00\x03\xe9")
	for i := range maxLinks + 1 {
		e := make([]byte, 72)
		binary.BigEndian.PutUint32(e[24:], modeLink)
		copy(e[60:], []byte{0, 2, byte('a' + i%26), byte('A' + i/26)})
		many = append(many, e...)
	}
	if err := read(append(many, make([]byte, 20)...)); !errors.Is(err, errLinks) {
		t.Errorf("too many submodules: %v", err)
	}
}

// FuzzIndex: an index of any content is read or refused, and what is read is a clean path that stays in the work tree.
func FuzzIndex(f *testing.F) {
	dir := listed(f, "sha1", "sub/in", "vendor/lib")
	f.Add(indexOf(f, dir))
	git(f, dir, "update-index", "--index-version", "4")
	f.Add(indexOf(f, dir))
	f.Add(indexOf(f, listed(f, "sha256", "sub/in")))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := readIndex(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, l := range out.links {
			if !filepath.IsLocal(l) || filepath.Clean(l) != l || len(l) > maxName {
				t.Errorf("the path %q", l)
			}
		}
	})
}
