package chat

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/plain"
)

// TestDiffLines: lines of a patch are told apart, no control gets through, and a long one is
// cut with a word about the rest.
func TestDiffLines(t *testing.T) {
	got := diffLines("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\x1b[2J\n+new\n same\n", "warning: y\n", session)
	want := []plain.Line{
		{Kind: plain.Note, Text: "diff --git a/x b/x"},
		{Kind: plain.Note, Text: "--- a/x"},
		{Kind: plain.Note, Text: "+++ b/x"},
		{Kind: plain.Note, Text: "@@ -1 +1 @@"},
		{Kind: plain.Removed, Text: `old\u001b[2J`},
		{Kind: plain.Added, Text: "new"},
		{Kind: plain.Context, Text: "same"},
		{Kind: plain.Note, Text: "! warning: y"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines: %+v", len(got), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, not %+v", got[i], want[i])
		}
	}
	expect(t, "no change", []Effect{diffLines("", "", session)}, "nothing changed\n")
	long := diffLines(strings.Repeat("+x\n", maxDiff+5), "", session)
	if last := long[len(long)-1].Text; len(long) != maxDiff+1 || !strings.Contains(last, "all of it: holdfast session diff "+session) {
		t.Errorf("%d lines, the last %q", len(long), last)
	}
	var b beginning
	for range 3 {
		if n, err := b.Write(make([]byte, maxDiffBytes)); n != maxDiffBytes || err != nil {
			t.Error(n, err)
		}
	}
	if b.Len() != maxDiffBytes {
		t.Errorf("%d bytes kept", b.Len())
	}
}
