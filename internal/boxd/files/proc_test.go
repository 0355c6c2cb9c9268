//go:build linux

package files

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestProcIsRefused: no file operation opens a file in /proc, by its name or through a
// link, and the error says what to do instead; a driver that does not isolate may allow
// it.
func TestProcIsRefused(t *testing.T) {
	b := newBox(t)
	must(t, os.Symlink("/proc/self", b.path("l")))
	must(t, os.Symlink("/proc/self/status", b.path("s")))
	all := func(path string) map[string]error {
		out := map[string]error{}
		_, out["read"] = b.Read(wire.ReadRequest{Path: path}, new(strings.Builder))
		_, out["stat"] = b.Stat(wire.PathRequest{Path: path + "/."})
		_, out["list"] = b.List(wire.ListRequest{Path: path})
		_, out["glob"] = b.Glob(wire.GlobRequest{Path: path, Pattern: "*"})
		_, out["grep"] = b.Grep(wire.GrepRequest{Path: path, Pattern: "."})
		_, out["write"] = b.Write(wire.WriteRequest{Path: path + "/x", Parents: true}, strings.NewReader("x"))
		_, out["edit"] = b.Edit(wire.EditRequest{Path: path + "/comm", Old: "a", New: "b"})
		out["mkdir"] = b.Mkdir(wire.MkdirRequest{Path: path + "/x"})
		out["remove"] = b.Remove(wire.RemoveRequest{Path: path + "/fd/3", Recursive: true})
		out["rename"] = b.Rename(wire.RenameRequest{From: path + "/status", To: "taken"})
		return out
	}
	for _, path := range []string{"/proc", "/proc/self", "/proc/1/fd", "/proc/self/fd", "/proc/thread-self", "l", "l/fd", "l/task"} {
		for op, err := range all(path) {
			if op == "stat" && path == "l" {
				continue // the link itself, which is in the workspace
			}
			if !holdfast.IsKind(err, holdfast.KindDenied) && !holdfast.IsKind(err, holdfast.KindNotFound) {
				t.Errorf("%s of %s: %v", op, path, err)
			}
		}
		_, err := b.List(wire.ListRequest{Path: path})
		wantKind(t, err, holdfast.KindDenied, "/proc")
		if !strings.Contains(holdfast.HintOf(err), "Bash") {
			t.Errorf("%s: hint %q", path, holdfast.HintOf(err))
		}
	}
	for _, path := range []string{"s", "/proc/self/status", "/proc/meminfo", "l/status"} {
		_, err := b.Read(wire.ReadRequest{Path: path}, new(strings.Builder))
		wantKind(t, err, holdfast.KindDenied, "/proc")
	}
	// A walk from above skips it.
	if ans, err := b.Glob(wire.GlobRequest{Path: "/", Pattern: fmt.Sprintf("proc/%d/status", os.Getpid())}); err == nil && len(ans.Paths) > 0 {
		t.Errorf("glob from above: %q", ans.Paths)
	}
	if ans, err := b.Glob(wire.GlobRequest{Path: "/", Pattern: "{proc,none}/meminfo"}); err != nil || len(ans.Paths) > 0 {
		t.Errorf("glob from the top: %q, %v", ans.Paths, err)
	}
	open := New(Config{Workspace: b.ws, Home: b.home, Proc: true})
	var out strings.Builder
	if _, err := open.Read(wire.ReadRequest{Path: "/proc/self/status"}, &out); err != nil || out.Len() == 0 {
		t.Errorf("where it is allowed: %v", err)
	}
	// Magic links are never followed.
	_, err := open.List(wire.ListRequest{Path: "/proc/self/cwd"})
	wantKind(t, err, holdfast.KindInvalid, "symbolic links")
}

// patterned is a box with files that patterns protect, and links to them.
func patterned(t *testing.T) (box, wire.Scope) {
	t.Helper()
	b := newBox(t)
	b.put(t, ".env", "needle env")
	b.put(t, "sub/.env", "needle sub")
	b.put(t, "sub/.env.d/x", "needle below")
	b.put(t, "plain", "needle plain")
	b.put(t, "real/x", "needle real")
	for link, to := range map[string]string{"innocent": ".env", "dir": "sub", "named": "real", "sub/.envlink": "../plain"} {
		must(t, os.Symlink(to, b.path(link)))
	}
	s := wire.Scope{Patterns: []string{"/**/.env", "/**/.env.d", b.ws + "/named"}}
	return b, s
}

// TestScopePatternsHold: a path that matches a pattern is refused for every operation,
// by its name and by its target, and left out of lists and searches.
func TestScopePatternsHold(t *testing.T) {
	b, s := patterned(t)
	for path, ok := range map[string]bool{
		"plain": true, "real/x": true, "sub/.envlink": true, "dir/.envlink": true,
		".env": false, "sub/.env": false, "sub/.env.d/x": false, "innocent": false, "dir/.env": false, "dir/.env.d/x": false,
		"named/x": false, // by its name alone
	} {
		_, err := b.Within(s).Read(wire.ReadRequest{Path: path}, new(strings.Builder))
		_, serr := b.Within(s).Grep(wire.GrepRequest{Path: path, Pattern: "needle"})
		_, eerr := b.Within(s).Edit(wire.EditRequest{Path: path, Old: "needle", New: "needle "})
		for op, err := range map[string]error{"read": err, "grep": serr, "edit": eerr} {
			if (err == nil) != ok || !ok && !holdfast.IsKind(err, holdfast.KindDenied) {
				t.Errorf("%s %s: %v", op, path, err)
			}
		}
	}
	for path, ok := range map[string]bool{"new": true, "sub/.env": false, "new/.env": false, "new/.env.d/deep/y": false, "innocent": false} {
		_, err := b.Within(s).Write(wire.WriteRequest{Path: path, Parents: true}, strings.NewReader("x"))
		if (err == nil) != ok || !ok && !holdfast.IsKind(err, holdfast.KindDenied) && path != "new/.env" && path != "new/.env.d/deep/y" {
			t.Errorf("write %s: %v", path, err)
		}
		_ = os.RemoveAll(b.path("new"))
	}
	ans, err := b.Within(s).Grep(wire.GrepRequest{Pattern: "needle"})
	must(t, err)
	for _, m := range ans.Matches {
		if strings.Contains(m.Path, ".env/") || strings.HasSuffix(m.Path, ".env") || strings.Contains(m.Path, ".env.d") {
			t.Errorf("grep shows %s", m.Path)
		}
	}
	found, err := b.Within(s).Glob(wire.GlobRequest{Pattern: "**"})
	must(t, err)
	for _, p := range found.Paths {
		if strings.HasSuffix(p, "/.env") || strings.Contains(p, ".env.d") || strings.HasSuffix(p, "/named") {
			t.Errorf("glob shows %s", p)
		}
	}
	list, err := b.Within(s).List(wire.ListRequest{Path: "dir"})
	must(t, err)
	for _, e := range list.Entries {
		if e.Path == ".env" || e.Path == ".env.d" {
			t.Errorf("list shows %s", e.Path)
		}
	}
	if len(ans.Matches) != 2 || len(found.Paths) < 4 || len(list.Entries) != 1 {
		t.Errorf("too little is shown: %+v %q %+v", ans.Matches, found.Paths, list.Entries)
	}
	// An unreadable pattern refuses everything.
	for _, bad := range []string{"relative", "/a/["} {
		if _, err := b.Within(wire.Scope{Patterns: []string{bad}}).Read(wire.ReadRequest{Path: "plain"}, new(strings.Builder)); err == nil {
			t.Errorf("%s refuses nothing", bad)
		}
	}
}

// TestScopePatternsHoldChanges is TestScopePatternsHold for the operations that make,
// move and remove.
func TestScopePatternsHoldChanges(t *testing.T) {
	b, s := patterned(t)
	for path, ok := range map[string]bool{"plain": true, "sub/.env": false, "dir/.env": false, "named": false} {
		_, serr := b.Within(s).Stat(wire.PathRequest{Path: path})
		rerr := b.Within(s).Rename(wire.RenameRequest{From: path, To: "moved"})
		if ok {
			must(t, os.Rename(b.path("moved"), b.path(path)))
		}
		merr := b.Within(s).Rename(wire.RenameRequest{From: "plain", To: path})
		derr := b.Within(s).Remove(wire.RemoveRequest{Path: path})
		kerr := b.Within(s).Mkdir(wire.MkdirRequest{Path: path + "/.env"})
		for op, err := range map[string]error{"stat": serr, "rename": rerr, "rename to": merr, "remove": derr} {
			if (err == nil) != ok || !ok && !holdfast.IsKind(err, holdfast.KindDenied) {
				t.Errorf("%s %s: %v", op, path, err)
			}
		}
		if kerr == nil {
			t.Errorf("mkdir below %s", path)
		}
		if err := b.Within(s).Mkdir(wire.MkdirRequest{Path: "sub/.env.d"}); !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("mkdir of what is there and denied: %v", err)
		}
		_ = os.RemoveAll(b.path("plain"))
		b.put(t, "plain", "needle plain")
	}
}
