package resident

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

// TestHZ12_LinesResumeAnywhere: however output is cut into writes, and after
// whichever line the reader dies, the next one that begins at the last offset it
// made durable sees every line once.
func TestHZ12_LinesResumeAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,40}`), 1, 30).Draw(t, "lines")
		text := strings.Join(want, "\n") + "\n"
		var got []string
		durable := int64(0)
		for durable < int64(len(text)) {
			dies := rapid.IntRange(0, len(want)).Draw(t, "dies after")
			l := &Lines{From: durable, Line: func(line []byte, next int64) error {
				if dies == 0 {
					return errors.New("killed")
				}
				dies--
				got, durable = append(got, string(line)), next
				return nil
			}}
			var err error
			for rest := text[durable:]; rest != "" && err == nil; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
				_, err = l.Write([]byte(rest[:n]))
				rest = rest[n:]
				if l.Taken() != durable {
					t.Fatalf("taken %d, durable %d", l.Taken(), durable)
				}
			}
			if (err == nil) != (l.Err() == nil) {
				t.Fatalf("write said %v, Err %v", err, l.Err())
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// WS-N2.
func TestLinesHaveABound(t *testing.T) {
	l := &Lines{Most: 10, Line: func([]byte, int64) error { return nil }}
	if _, err := l.Write([]byte("0123456789\n01234")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("567890")); !holdfast.IsKind(err, holdfast.KindTooLarge) || l.Taken() != 11 {
		t.Fatalf("%v, taken %d", err, l.Taken())
	}
	if _, err := l.Write([]byte("\nmore\n")); err == nil {
		t.Fatal("a reader that gave up went on")
	}
	gap := &Lines{Line: func([]byte, int64) error { return nil }}
	gap.Gap(3, 9)
	if _, err := gap.Write(bytes.Repeat([]byte("x\n"), 3)); !holdfast.IsKind(err, holdfast.KindUnavailable) || gap.Taken() != 0 {
		t.Fatalf("%v, taken %d", err, gap.Taken())
	}
}
