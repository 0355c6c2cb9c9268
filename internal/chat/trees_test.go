package chat

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// TestDiffOfCheckpoints: /diff shows the comparison that its words ask for; what is too long ends with the command
// that prints all of it. If the words mean nothing, the server is not asked.
func TestDiffOfCheckpoints(t *testing.T) {
	for typed, want := range map[string]string{
		"/diff": "", "/diff stat": "stat", "/diff  #2   #3": "#2 #3", "/diff stat start": "stat start", "/diff wrong": "",
	} {
		asked := make(chan string, 1)
		l, inputs := linked(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- strings.TrimPrefix(r.URL.Path, "/v1/sessions/"+session) + "?" + r.URL.RawQuery
			_, _ = w.Write([]byte(strings.Repeat("+x\n", maxDiff+1)))
		}))
		k := talking()
		k.Compare = func(_ context.Context, c *client.Client, id holdfast.SessionID, words []string) (of holdfast.CompareCheckpoints, command string, err error) {
			if c != l.calls || id != session || strings.Join(words, " ") == "wrong" {
				return of, "", holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "no checkpoint").WithHint("look at the list")
			}
			return holdfast.CompareCheckpoints{From: "a", To: "b", Format: holdfast.DiffStat}, "print " + strings.Join(words, " "), nil
		}
		shown := typeIn(t, l, inputs, k, typed)
		if typed == "/diff wrong" {
			if shown != "! checkpoint: no checkpoint\nhint: look at the list\n" || len(asked) > 0 {
				t.Errorf("%s: %d requests, shown %s", typed, len(asked), shown)
			}
			continue
		}
		if got := <-asked; got != "/diff?format=stat&from=a&to=b" {
			t.Errorf("%s asked for %s", typed, got)
		}
		if !strings.HasSuffix(shown, "x\nthat is the beginning; all of it: print "+want+"\n") {
			t.Errorf("%s: shown …%s", typed, shown[max(0, len(shown)-200):])
		}
	}
}

// TestDiffLines: lines of a patch are told apart, no control gets through, and a long one is
// cut with a word about the rest.
func TestDiffLines(t *testing.T) {
	got := diffLines("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\x1b[2J\n+new\n same\n", "warning: y\n", "")
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
	expect(t, "no change", []Effect{diffLines("", "", "")}, "nothing changed\n")
	long := diffLines(strings.Repeat("+x\n", maxDiff+5), "", "holdfast session diff --stat")
	if last := long[len(long)-1].Text; len(long) != maxDiff+1 || !strings.Contains(last, "all of it: holdfast session diff --stat") {
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
