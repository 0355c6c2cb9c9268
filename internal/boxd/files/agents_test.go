package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestWSR83_AgentDirsAreNotOpened: a scope keeps every operation out of the directories of agents, wherever a
// symlink leads, and leaves them out of lists, searches and copies.
func TestWSR83_AgentDirsAreNotOpened(t *testing.T) {
	b, in := withAgents(t)
	denied := func(what string, err error) {
		t.Helper()
		var e *holdfast.Error
		if !holdfast.IsKind(err, holdfast.KindDenied) || !errors.As(err, &e) || !strings.Contains(err.Error(), ".claude") || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, path := range []string{"~/.claude/settings.json", "link/settings.json", "home/.claude/settings.json", b.home + "/.claude/settings.json", "home/x/../.claude/settings.json"} {
		_, err := in.Read(wire.ReadRequest{Path: path}, io.Discard)
		denied("read "+path, err)
		_, err = in.Write(wire.WriteRequest{Path: path, Parents: true}, strings.NewReader("x"))
		denied("write "+path, err)
		_, err = in.Edit(wire.EditRequest{Path: path, Old: "needle", New: "x"})
		denied("edit "+path, err)
		denied("remove "+path, in.Remove(wire.RemoveRequest{Path: path}))
		_, err = in.Stat(wire.PathRequest{Path: path})
		denied("stat "+path, err)
		_, err = in.Pack(wire.PackRequest{Path: path}, io.Discard, direct)
		denied("pack "+path, err)
	}
	for _, dir := range []string{"~/.claude", "link", "home/.claude"} {
		_, err := in.List(wire.ListRequest{Path: dir})
		denied("list "+dir, err)
		_, err = in.Glob(wire.GlobRequest{Pattern: "*", Path: dir})
		denied("glob "+dir, err)
		_, err = in.Grep(wire.GrepRequest{Pattern: "needle", Path: dir})
		denied("grep "+dir, err)
		denied("mkdir "+dir, in.Mkdir(wire.MkdirRequest{Path: dir + "/new"}))
		_, err = in.Unpack(wire.UnpackRequest{Path: dir}, archive(t, "settings.json"), "life", direct)
		denied("unpack "+dir, err)
	}
	_, err := in.Unpack(wire.UnpackRequest{Path: "~"}, archive(t, ".claude/settings.json", "fresh"), "life", direct)
	denied("unpack into the home", err)
	_, err = in.Unpack(wire.UnpackRequest{Path: "~/.claude/new"}, archive(t, "x"), "life", direct)
	denied("unpack to a new directory", err)
	if err := in.Remove(wire.RemoveRequest{Path: "~/.local", Recursive: true}); !holdfast.IsKind(err, holdfast.KindDenied) || !strings.Contains(err.Error(), "agent") {
		t.Errorf("remove a directory above: %v", err)
	}
	if err := in.Rename(wire.RenameRequest{From: "~/.claude", To: "away"}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("rename: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(b.home, ".claude/settings.json")); err != nil || string(got) != "needle" {
		t.Errorf("the file is now %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(b.home, "fresh")); err == nil {
		t.Error("a refused archive left a file")
	}
}

// TestWSR83_AgentDirsAreLeftOut: lists, searches and copies do not have the directories of agents.
func TestWSR83_AgentDirsAreLeftOut(t *testing.T) {
	b, in := withAgents(t)
	list, err := in.List(wire.ListRequest{Path: "~"})
	must(t, err)
	var names []string
	for _, e := range list.Entries {
		names = append(names, e.Path)
	}
	if want := []string{".local", "notes"}; !slices.Equal(names, want) {
		t.Errorf("the home lists %q, want %q", names, want)
	}
	found, err := in.Grep(wire.GrepRequest{Pattern: "needle", Path: "~"})
	must(t, err)
	if len(found.Matches) != 2 {
		t.Errorf("a search of the home finds %+v", found.Matches)
	}
	globbed, err := in.Glob(wire.GlobRequest{Pattern: "~/**"})
	must(t, err)
	if len(globbed.Paths) != 2 {
		t.Errorf("a pattern finds %q", globbed.Paths)
	}
	var out bytes.Buffer
	sum, err := in.Pack(wire.PackRequest{Path: "~"}, &out, direct)
	must(t, err)
	if text := out.String(); strings.Contains(text, ".claude/") || strings.Contains(text, "share/agent/") || !strings.Contains(text, "notes") || len(sum.Skipped) != 2 {
		t.Errorf("the copy of the home has %+v", sum)
	}
	if sum, err = in.Unpack(wire.UnpackRequest{Path: "~"}, archive(t, "fresh"), "life", direct); err != nil || sum.Files != 1 {
		t.Errorf("an archive without them: %+v, %v", sum, err)
	}
	must(t, in.Remove(wire.RemoveRequest{Path: "link"}))
	for _, bad := range []string{"/etc", "..", ".", "../x", ""} {
		if _, err := b.Within(wire.Scope{Agents: []string{bad}}).Read(wire.ReadRequest{Path: "~/notes"}, io.Discard); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("a scope with the directory %q: %v", bad, err)
		}
	}
}

// withAgents returns a box whose home has directories of two agents, and the operations of a scope that names them.
func withAgents(t *testing.T) (box, *FS) {
	t.Helper()
	b := newBox(t)
	put := func(name, text string) {
		t.Helper()
		p := filepath.Join(b.home, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o644))
	}
	put(".claude/settings.json", "needle")
	put(".local/share/agent/x", "needle")
	put(".local/other", "needle")
	put("notes", "needle")
	must(t, os.Symlink(filepath.Join(b.home, ".claude"), b.path("link")))
	must(t, os.Symlink(b.home, b.path("home")))
	return b, b.Within(wire.Scope{Agents: []string{".claude", ".local/share/agent"}})
}

func direct(fn func() error) error { return fn() }

// archive returns a tar archive with files of these names.
func archive(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}))
		_, err := w.Write([]byte("x"))
		must(t, err)
	}
	must(t, w.Close())
	return &out
}
