package settings

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/rooted"
)

// distant is a tree on the other side of a network: nothing comes after its context has ended.
type distant struct{ rooted.Tree }

func (d distant) Stat(ctx context.Context, name string) (rooted.Stamp, error) {
	if err := ctx.Err(); err != nil {
		return rooted.Stamp{}, err
	}
	return d.Tree.Stat(ctx, name)
}

// TestLookOfAnEndedContext: a caller that went away says nothing about the files. They count as
// they were, and the next Look reads them.
func TestLookOfAnEndedContext(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".claude"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, ".claude/settings.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"permissions": {"deny": ["Bash(rm *)"]}}`)
	w := &Workspace{Tree: distant{rooted.Tree(dir)}, Session: "one"}
	look := func(ctx context.Context, changed bool, end error, deny string) {
		t.Helper()
		if got, err := w.Look(ctx); got != changed || !errors.Is(err, end) {
			t.Errorf("look: %t, %v; want %t, %v", got, err, changed, end)
		}
		if got := rules(w.Layer().Rules.Deny); got != deny || w.Layer().Refuse != "" {
			t.Errorf("deny %q, refuse %q; want %q", got, w.Layer().Refuse, deny)
		}
	}
	look(t.Context(), true, nil, "Bash(rm *)")
	look(t.Context(), false, nil, "Bash(rm *)")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	look(ended, false, context.Canceled, "Bash(rm *)")
	write(`{"permissions": {"deny": ["Bash(rm *)", "Bash(mv *)"]}}`)
	look(ended, false, context.Canceled, "Bash(rm *)")
	look(t.Context(), true, nil, "Bash(rm *) Bash(mv *)")
	write("{")
	if changed, err := w.Look(t.Context()); !changed || err != nil || !strings.Contains(w.Layer().Refuse, "cannot be read") {
		t.Errorf("a broken file: %t, %v, %q", changed, err, w.Layer().Refuse)
	}
}
