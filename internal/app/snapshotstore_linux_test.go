package app_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// writes makes a session in which each turn writes one of the files, and returns when there are snapshots of all.
func writes(t *testing.T, c *client.Client, files ...string) holdfast.SessionID {
	t.Helper()
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"echo content of `+f+` > `+f+`"}},{"say":"done"}]</script>`)
	}
	taken(t, c, ses.ID, len(files))
	return ses.ID
}

// taken returns when a session has n snapshots: a turn has ended before its snapshot is taken.
func taken(t *testing.T, c *client.Client, id holdfast.SessionID, n int) {
	t.Helper()
	testkit.Eventually(t, "the snapshots are taken", func() bool {
		return len(logged[holdfast.SnapshotTaken](t, c, id, holdfast.EventSnapshotTaken)) == n
	})
}

// TestSnapshotsAreCollectedByTheSettings: a dry run removes nothing and names what a run then removes.
func TestSnapshotsAreCollectedByTheSettings(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Snapshots.Keep = 1
	c, _ := serve(t, cfg)
	ctx := t.Context()
	id := writes(t, c, "a", "b", "c")
	before, err := c.Checkpoints(ctx, id, "", 0)
	if err != nil || len(before.Checkpoints) != 3 {
		t.Fatalf("%+v %v", before, err)
	}
	held, err := c.Snapshots(ctx)
	if err != nil || held.Checkpoints != 3 || held.Packs == 0 || held.Bytes == 0 || held.UnusedPacks != 0 || len(held.Sessions) != 1 {
		t.Fatalf("%+v %v", held, err)
	}
	if one := held.Sessions[0]; one.Session != id || one.Checkpoints != 3 || one.Packs != held.Packs || one.Bytes != held.Bytes || !one.Newest.Equal(before.Checkpoints[0].CreatedAt) {
		t.Errorf("of the session: %+v, in all %+v, newest %v", one, held, before.Checkpoints[0].CreatedAt)
	}

	plan, err := c.CollectSnapshots(ctx, true)
	if err != nil || !plan.DryRun || len(plan.Checkpoints) != 2 || len(plan.Removed) != 0 || len(plan.Faults) != 0 {
		t.Fatalf("%+v %v", plan, err)
	}
	for i, cp := range plan.Checkpoints {
		if want := before.Checkpoints[2-i].ID; cp.ID != want || cp.Session != id || cp.Reason != "count" {
			t.Errorf("%+v, want %s", cp, want)
		}
	}
	if again, err := c.Snapshots(ctx); err != nil || !cmp.Equal(again, held) {
		t.Errorf("after a dry run: %+v %v", again, err)
	}

	done, err := c.CollectSnapshots(ctx, false)
	if plan.DryRun = false; err != nil || !cmp.Equal(done, plan) {
		t.Errorf("%v\n%s", err, cmp.Diff(plan, done))
	}
	after, err := c.Snapshots(ctx)
	if err != nil || after.Checkpoints != 1 || after.UnusedPacks != len(done.Marked) || after.UnusedBytes != done.MarkedBytes {
		t.Errorf("%+v %v, marked %d packs with %d bytes", after, err, len(done.Marked), done.MarkedBytes)
	}
	rep, err := c.VerifySnapshots(ctx)
	if err != nil || rep.Checkpoints != 1 || rep.Packs == 0 || rep.Blobs == 0 || len(rep.Damaged)+len(rep.Faults) != 0 {
		t.Errorf("%+v %v", rep, err)
	}
}

// TestSnapshotDamageIsNamed: without the pack of the first turn, each checkpoint lacks the file that this turn
// wrote, and nothing else.
func TestSnapshotDamageIsNamed(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Snapshots.Keep, cfg.Snapshots.MaxAge = 0, 0
	c, _ := serve(t, cfg)
	id := writes(t, c, "a")
	packs := packFiles(t, cfg.Data)
	if len(packs) != 1 {
		t.Fatalf("packs %v", packs)
	}
	turn(t, c, id, `<script>[{"tool":"Bash","input":{"command":"echo b > b"}},{"say":"done"}]</script>`)
	taken(t, c, id, 2)
	page, err := c.Checkpoints(t.Context(), id, "", 0)
	if err != nil || len(page.Checkpoints) != 2 {
		t.Fatalf("%+v %v", page, err)
	}
	if err := os.Remove(packs[0]); err != nil {
		t.Fatal(err)
	}
	rep, err := c.VerifySnapshots(t.Context())
	if err != nil || rep.Checkpoints != 2 || len(rep.Damaged) != 2 || len(rep.Faults) != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	var paths []string
	for _, d := range rep.Damaged {
		if d.Session != id {
			t.Errorf("%+v", d)
		}
		if d.ID == page.Checkpoints[0].ID {
			paths = d.Paths
		}
	}
	if !slices.Contains(paths, "a") || slices.Contains(paths, "b") {
		t.Errorf("the newest checkpoint has lost %v", paths)
	}
	if f := rep.Faults[0]; f.ID == "" || !strings.HasPrefix(f.Reason, "the pack does not exist") || len(f.Checkpoints) != 2 {
		t.Errorf("%+v", f)
	}
	done, err := c.CollectSnapshots(t.Context(), true)
	if err != nil || len(done.Faults) != 1 || len(done.Checkpoints) != 0 {
		t.Errorf("%+v %v", done, err)
	}
}

// packFiles returns the files of the snapshot store of a data directory.
func packFiles(t *testing.T, data string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(data, "snapshots"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
