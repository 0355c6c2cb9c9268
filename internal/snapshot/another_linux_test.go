package snapshot_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// others are the ways in which another directory gets in the place of the user's.
var others = map[string]func(t testing.TB, w *world){
	"another directory": func(t testing.TB, w *world) {
		must(t, os.Rename(w.mine, w.mine+"-away"))
		must(t, os.Rename(w.mine+"-other", w.mine))
	},
	"a symlink": func(t testing.TB, w *world) {
		must(t, os.Rename(w.mine, w.mine+"-away"))
		must(t, os.Symlink(w.mine+"-other", w.mine))
	},
	"another owner": func(t testing.TB, w *world) {
		if os.Getuid() != 0 {
			t.Skip("only root can give a directory away")
		}
		must(t, os.Chown(w.mine, user().UID+1, user().GID))
	},
}

// other makes the directory that gets in the place of the user's, with files of the same names.
func (w *world) other() {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Join(w.mine+"-other", "src"), 0o755))
	for _, name := range []string{"src/main", "src/secret", "README"} {
		must(w.t, os.WriteFile(filepath.Join(w.mine+"-other", name), []byte("two"), 0o644))
	}
}

// isAnother fails the test unless err says that the directory is not the user's any more.
func isAnother(t testing.TB, what string, err error) {
	t.Helper()
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "is not what it was") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestAnotherDirectory: what is in the place of the user's directory, and is not that directory, is neither stored nor
// changed (I-47).
func TestAnotherDirectory(t *testing.T) {
	for name, replace := range others {
		t.Run(name, func(t *testing.T) {
			ctx, w := t.Context(), newBorrowed(t)
			first := w.next(func() { w.put("src/main", "one") })
			last := w.next(func() { w.put("src/main", "two") })
			w.other()
			stored := len(w.stored())
			replace(t, w)
			want := state(t, filepath.Dir(w.mine))
			for range 2 {
				w.snaps.Take(ctx, w.row(), holdfast.CheckpointStop)
				_, err := w.snaps.Newest(ctx, w.row())
				_, _, ferr := snapshot.Found(ctx, w.snaps, w.row())
				_, rerr := w.into(first, false)
				_, derr := w.into(first, true)
				_, kerr := w.branches.Rewind(ctx, w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first)})
				for what, err := range map[string]error{
					"newest": err, "found": ferr, "rewind": rerr, "dry run": derr, "rewind of the conversation": kerr,
					"ready": w.snaps.Ready(ctx, w.row()), "restore": w.snaps.Restore(ctx, w.row(), string(first)),
				} {
					isAnother(t, what, err)
				}
				w.start()
			}
			sameFiles(t, "the directories", state(t, filepath.Dir(w.mine)), want)
			failed := w.log(holdfast.EventSnapshotFailed)
			if len(failed) != 2 || !strings.Contains(string(failed[0].Data), "is not what it was") {
				t.Errorf("%d snapshots failed: %+v", len(failed), failed)
			}
			if n := len(w.stored()); n != stored || slices.Contains(w.names(last), "src/secret") {
				t.Errorf("%d checkpoints, before %d", n, stored)
			}
		})
	}
}

// TestAnotherDirectoryMeanwhile: the directory that is read and written is the one that was compared, at every moment.
func TestAnotherDirectoryMeanwhile(t *testing.T) {
	for name, replace := range others {
		for _, point := range []string{"alive", "scanned", "staged", "ready", "rewound"} {
			t.Run(name+" "+point, func(t *testing.T) {
				w := newBorrowed(t)
				first := w.next(func() { w.put("src/main", "one"); w.put("src/old", "one") })
				w.next(func() { w.put("src/main", "two"); must(t, os.Remove(w.in("src/old"))) })
				w.other()
				want := contents(t, w.mine+"-other")
				w.reached = func(at string) {
					if at == point {
						w.reached = nil
						replace(t, w)
					}
				}
				_, err := w.into(first, false)
				wantKind(t, err, holdfast.KindConflict)
				if _, ok := w.files(w.stored()[0])["workspace/src/secret"]; ok {
					t.Error("the other directory was stored")
				}
				if got, err := os.ReadFile(w.in("src/main")); err != nil || string(got) != "two" {
					t.Errorf("src/main has %q, %v", got, err)
				}
				if name != "another owner" {
					there, err := filepath.EvalSymlinks(w.mine)
					must(t, err)
					sameFiles(t, "the other directory", contents(t, there), want)
				}
			})
		}
	}
}
