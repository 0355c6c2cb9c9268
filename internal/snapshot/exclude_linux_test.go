package snapshot_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// TestExclude: what the patterns name is in no checkpoint, stays where it is in a rewind, and does not come back.
func TestExclude(t *testing.T) {
	w := newWorld(t, true)
	w.exclude = []string{"node_modules", "build/cache", "*.o"}
	w.start()
	w.ready()
	first := w.turn(func() {
		for _, name := range []string{"a", "build/b", "build/cache/x", "node_modules/x", "sub/node_modules/x", "sub/a.o", "cache/x"} {
			w.write("workspace/"+name, "one")
		}
		w.write("home/node_modules/x", "one")
	})
	_, cp := w.find(string(first))
	var stored []string
	for path := range w.files(cp) {
		if strings.Contains(path, "node_modules") || strings.Contains(path, "build/cache") || strings.HasSuffix(path, ".o") {
			stored = append(stored, path)
		}
	}
	if len(stored) != 2 || !strings.HasPrefix(stored[0], "home/") || !strings.HasPrefix(stored[1], "home/") {
		t.Errorf("stored %q", stored)
	}
	w.turn(func() { w.write("workspace/a", "two") })
	w.rewind(string(first), "")
	for name, want := range map[string]string{"a": "one", "node_modules/x": "one", "build/cache/x": "one"} {
		if got, err := os.ReadFile(w.at("workspace/" + name)); err != nil || string(got) != want {
			t.Errorf("after a rewind %s has %q, %v", name, got, err)
		}
	}
	_, err := snapshot.New(snapshot.Config{Exclude: []string{"[a"}})
	wantKind(t, err, holdfast.KindInvalid)
}
