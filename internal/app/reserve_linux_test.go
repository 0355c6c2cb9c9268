package app_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

func ownerOf(t *testing.T, path ...string) uint32 {
	t.Helper()
	info, err := os.Lstat(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// TestReservedBoxKeepsItsIDs: a new session takes a box that stands ready, agent
// files and all, and has its ids for good: in the box after it was ended, and
// after a restart. A reservation that was cut off leaves its directory to the
// session (I-18).
func TestReservedBoxKeepsItsIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has one id")
	}
	cfg := settings(t, "local")
	cfg.Prewarm = 1
	first := uint32(cfg.Root.UIDBase) + place.ReadyUIDs
	c, stop := serve(t, cfg)
	dir := func(id holdfast.SessionID, name string) string {
		return filepath.Join(cfg.Data, "sessions", string(id), name)
	}
	create := func() holdfast.SessionID {
		t.Helper()
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return ses.ID
	}
	var id holdfast.SessionID
	testkit.Eventually(t, "a session has a box that stood ready", func() bool {
		id = create()
		execute(t, c, id, "echo one > f")
		return ownerOf(t, dir(id, "workspace")) >= first
	})
	uid := ownerOf(t, dir(id, "workspace"))
	check := func(when string) {
		t.Helper()
		if got := execute(t, c, id, "cat f; id -u; touch g; stat -c %U f g CLAUDE.md"); got != "one\n1000\nagent\nagent\nagent\n" {
			t.Errorf("%s: %q", when, got)
		}
		if now := ownerOf(t, dir(id, "workspace")); now != uid || ownerOf(t, dir(id, "state")) != uid-1 {
			t.Errorf("%s: the workspace belongs to %d, not %d", when, now, uid)
		}
	}
	check("in the first box")
	if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	check("in another box")
	stop()
	cfg.Prewarm = 0
	c, _ = serve(t, cfg)
	check("after a restart")

	id, uid = create(), first+4_001
	for name, owner := range map[string]uint32{"workspace": uid, "home": uid, "state": uid - 1} {
		if err := os.MkdirAll(dir(id, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "state" {
			if err := os.WriteFile(dir(id, "state/token"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir(id, "state/token"), int(owner), int(owner)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir(id, name), int(owner), int(owner)); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, c, id, "echo one > f")
	check("after a reservation that was cut off")
}
