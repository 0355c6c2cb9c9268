package sandbox_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// TestFeed: what is added is read in order, in pieces as large as the reader takes, and
// counted behind what the process had before.
func TestFeed(t *testing.T) {
	f := sandbox.NewFeed()
	f.Add([]byte("ahead\n"))
	if at := f.Next(); at != 6 {
		t.Errorf("next at %d", at)
	}
	f.Begin(100)
	f.Add([]byte("one\n"), []byte("two"), []byte("\n"))
	if at := f.Next(); at != 114 {
		t.Errorf("next at %d", at)
	}
	var got strings.Builder
	for buf := make([]byte, 4); got.Len() < 14; {
		n, err := f.Read(buf)
		if err != nil || n == 0 || n > 4 {
			t.Fatalf("%d %v", n, err)
		}
		got.Write(buf[:n])
	}
	if got.String() != "ahead\none\ntwo\n" {
		t.Errorf("read %q", got.String())
	}
}

// TestFeedWaits: a reader waits for what comes, and a closed feed gives nothing more,
// whatever is left and whoever waits.
func TestFeedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sandbox.NewFeed()
		type read struct {
			text string
			err  error
		}
		got := make(chan read, 1)
		next := func() {
			buf := make([]byte, 10)
			n, err := f.Read(buf)
			got <- read{string(buf[:n]), err}
		}
		go next()
		synctest.Wait()
		if len(got) > 0 {
			t.Fatalf("read %v of nothing", <-got)
		}
		f.Add([]byte("x"))
		if r := <-got; r.text != "x" || r.err != nil {
			t.Errorf("read %v", r)
		}
		go next()
		synctest.Wait()
		f.Close()
		if r := <-got; r.text != "" || !errors.Is(r.err, io.ErrClosedPipe) {
			t.Errorf("read %v of a closed feed", r)
		}
		f.Add([]byte("late"))
		next()
		if r := <-got; r.text != "" || !errors.Is(r.err, io.ErrClosedPipe) {
			t.Errorf("read %v of a closed feed", r)
		}
	})
}

// TestTail: the end is kept, as text, however it came.
func TestTail(t *testing.T) {
	var tail sandbox.Tail
	if tail.String() != "" {
		t.Errorf("%q of nothing", tail.String())
	}
	for _, p := range []string{strings.Repeat("a", 5000), "\xff the", " end\n\n"} {
		if n, err := io.WriteString(&tail, p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if s := tail.String(); !strings.HasPrefix(s, "aaa") || !strings.HasSuffix(s, "a\uFFFD the end") || len(s) > 2<<10 {
		t.Errorf("kept %d bytes: %.20q", len(s), s)
	}
	// A character cut in two.
	if _, err := io.WriteString(&tail, strings.Repeat("é", 2<<10)+"."); err != nil {
		t.Fatal(err)
	}
	if s := tail.String(); !utf8.ValidString(s) || !strings.HasPrefix(s, "\uFFFDé") || !strings.HasSuffix(s, "é.") {
		t.Errorf("kept %.20q", s)
	}
}

// TestI19_FeedIsBounded: a process that does not read is not kept everything for, and
// what is refused is refused whole; one that reads is told on.
func TestI19_FeedIsBounded(t *testing.T) {
	f := sandbox.NewFeed()
	piece := make([]byte, 1<<20)
	for range 64 {
		if err := f.Add(piece); err != nil {
			t.Fatal(err)
		}
	}
	at := f.Next()
	if err := f.Add(nil, []byte("x")); !holdfast.IsKind(err, holdfast.KindTooLarge) || holdfast.HintOf(err) == "" || f.Next() != at {
		t.Errorf("added to a full feed: %v, next at %d", err, f.Next()-at)
	}
	if n, err := f.Read(piece); n != len(piece) || err != nil {
		t.Fatal(n, err)
	}
	if err := f.Add([]byte("x")); err != nil || f.Next() != at+1 {
		t.Errorf("there is room again: %v", err)
	}
}
