package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/testkit/powercut"
)

// TestHZ21_PowerCutAfterPublish: what was published, created and replaced is whole after a
// power cut.
func TestHZ21_PowerCutAfterPublish(t *testing.T) {
	disk := powercut.New(t, 32<<20)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	content := durable.Bytes([]byte("content"))
	top := filepath.Join(disk.Dir(), "a", "b")
	must(durable.MkdirAll(top, 0o700))
	stage := filepath.Join(top, "stage")
	must(os.MkdirAll(filepath.Join(stage, "c", "d"), 0o700))
	f, err := os.Create(filepath.Join(stage, "c", "d", "file"))
	must(err)
	must(durable.Write(f, content))
	must(durable.Publish(stage, filepath.Join(top, "name")))
	check := func(names ...string) {
		t.Helper()
		after := disk.Cut(t)
		for _, name := range names {
			if b, err := os.ReadFile(filepath.Join(after.Dir(), "a", "b", name)); err != nil || string(b) != "content" {
				t.Errorf("%s after a power cut: %q, %v", name, b, err)
			}
		}
	}
	check("name/c/d/file")
	must(durable.Create(filepath.Join(top, "created"), content))
	check("name/c/d/file", "created")
	must(durable.Create(filepath.Join(top, "replaced"), durable.Bytes([]byte("old"))))
	must(durable.Replace(filepath.Join(top, "replaced"), content))
	check("name/c/d/file", "created", "replaced")
}
