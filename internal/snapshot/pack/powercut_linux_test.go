package pack

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/internal/testkit/powercut"
)

// TestHZ21_PowerCutWhileCommitting cuts the power of a real disk before each step of a commit and
// after its end.
func TestHZ21_PowerCutWhileCommitting(t *testing.T) {
	for _, kind := range commitKinds[:2] {
		t.Run(kind.name, func(t *testing.T) { powerCuts(t, kind) })
	}
}

func powerCuts(t *testing.T, kind commitKind) {
	disk := powercut.New(t, 16<<20)
	dir := filepath.Join(disk.Dir(), "packs")
	d := &stepDisk{}
	s := kind.open(t, dir, d)
	var c crashed
	second := c.commits(t, s, kind)
	cut := func(when string, returned bool) {
		c.check(t, filepath.Join(disk.Cut(t).Dir(), "packs"), when, returned)
	}
	d.n = 0
	d.before = func(n int) error {
		cut(fmt.Sprintf("before step %d", n), false)
		return nil
	}
	if _, err := second(); err != nil {
		t.Fatal(err)
	}
	d.before = nil
	cut("after the end", true)
	files, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := s.Remove(f.ID); err != nil {
			t.Fatal(err)
		}
	}
	after, err := Open(filepath.Join(disk.Cut(t).Dir(), "packs"), crashKeys, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := after.List(); err != nil || len(left) > 0 {
		t.Errorf("%d packs came back after Remove, %v", len(left), err)
	}
}
