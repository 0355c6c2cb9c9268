package snapshot_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// TestRewindIntoSavedMeanwhile: a file that the user's editor saves at the moment at which a rewind replaces it stays, and a notice
// names it: after the rewind, after the start of the next server if the server ends with the user's file aside, and after a
// purge of the session. Nothing staged is left. (I-47)
func TestRewindIntoSavedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		crash string
		then  func(w *world)
	}{
		"in one go":           {"", func(*world) {}},
		"killed before":       {"placing", func(w *world) { w.ready() }},
		"killed in between":   {"exchanged", func(w *world) { w.ready() }},
		"killed at the start": {"exchanged", func(w *world) { must(w.t, snapshot.Finish(w.t.Context(), w.snaps, w.store.Sessions.Rows)) }},
		"killed after":        {"returned", func(w *world) { w.ready() }},
		"killed at the end":   {"restored", func(w *world) { w.ready() }},
		"purged":              {"exchanged", func(w *world) { must(w.t, w.snaps.Purge(w.t.Context(), w.row())) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBorrowed(t)
			first := w.next(func() { w.put("src/main", "one") })
			w.next(func() { w.put("src/main", "two") })
			saved := false
			w.crash, w.reached = c.crash, func(point string) {
				if point == "placing" && !saved {
					saved = true
					w.put("src/main~", "by the user")
					must(t, os.Rename(w.in("src/main~"), w.in("src/main")))
				}
			}
			crashed := w.do(func() {
				_, err := w.into(first, false)
				w.whole(err)
			})
			if crashed != (c.crash != "") || !saved {
				t.Fatalf("the server ended: %v, the file was saved: %v, after %v", crashed, saved, w.passed)
			}
			c.then(w)
			if got := contents(t, w.mine)["src/main"]; got != `644 "by the user"` {
				t.Errorf("the file is %s", got)
			}
			w.clean()
			n := w.notices(holdfast.NoticeRewindLeft)
			if len(n) != 1 || !strings.Contains(n[0], `"src/main"`) {
				t.Errorf("notices: %q", n)
			}
		})
	}
}
