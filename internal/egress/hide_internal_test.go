package egress

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const hiddenKey = "sk-sk-the-key-sk-the-key-x"

// hideIn passes text in pieces.
func hideIn(key string, pieces ...string) string {
	h := newHider(key)
	var out bytes.Buffer
	for _, p := range pieces {
		out.Write(h.pass([]byte(p)))
	}
	out.Write(h.end())
	return out.String()
}

// TestTheKeyIsHiddenAtEverySplit: wherever an answer is split into pieces, the key does
// not come through, and everything else does.
func TestTheKeyIsHiddenAtEverySplit(t *testing.T) {
	text := "data: {\"a\":\"" + hiddenKey + "\"}\n\nsk- sk-the sk-sk-the-key-sk-the-key-y " + hiddenKey + hiddenKey + " sk-sk-sk-the-key-sk-the-key-x\n\n"
	want := strings.ReplaceAll(text, hiddenKey, "***")
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			if got := hideIn(hiddenKey, text[:i], text[i:j], text[j:]); got != want {
				t.Fatalf("cut at %d and %d: %q", i, j, got)
			}
		}
	}
	if got := hideIn(hiddenKey, strings.Split(text, "")...); got != want {
		t.Errorf("byte by byte: %q", got)
	}
	if got := string(newHider(hiddenKey).all([]byte(text))); got != want {
		t.Errorf("at once: %q", got)
	}
}

// Only a possible beginning of the key is held back: a complete event goes on at once.
func TestOnlyABeginningOfTheKeyIsHeldBack(t *testing.T) {
	h := newHider(hiddenKey)
	for _, c := range []struct{ in, out string }{
		{"data: x\n\n", "data: x\n\n"},
		{"data: sk-s", "data: "},
		{"\n\n", "sk-s\n\n"},
		{"k", "k"},
		{"s", ""},
		{"s", "s"},
		{"k-sk-the-key-sk-the-key-", ""},
		{"y", "sk-sk-the-key-sk-the-key-y"},
		{hiddenKey[:20], ""},
		{hiddenKey[20:] + "s", "***"},
		{"", ""},
	} {
		if got := string(h.pass([]byte(c.in))); got != c.out {
			t.Errorf("after %q came %q, want %q", c.in, got, c.out)
		}
	}
	if got := string(h.end()); got != "s" {
		t.Errorf("the end is %q", got)
	}
	h.pass([]byte(hiddenKey[:len(hiddenKey)-1]))
	if got := string(h.end()); got != "***" {
		t.Errorf("an answer that ends within the key ends with %q", got)
	}
}

// A provider may repeat the key in the spelling of JSON or of a URL.
func TestTheKeyIsHiddenInItsSpellings(t *testing.T) {
	key := `a"b/c+d<é`
	for _, s := range []string{key, `a\"b/c+d\u003cé`, "a%22b%2Fc%2Bd%3C%C3%A9", "a%22b%2Fc+d%3C%C3%A9"} {
		if got := hideIn(key, "x ", s[:5], s[5:], " y"); got != "x *** y" {
			t.Errorf("%s: %q", s, got)
		}
	}
	for _, key := range []string{"", "abc"} {
		if got := hideIn(key, "abcabc"); got != "abcabc" {
			t.Errorf("%q: %q", key, got)
		}
	}
}

// TestHiddenStreamsHoldNoKey compares any split into pieces with the text as a whole.
func TestHiddenStreamsHoldNoKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 4, 9, -1).Draw(t, "key")
		pieces := rapid.SliceOf(rapid.StringOf(rapid.SampledFrom([]rune("ab\n")))).Draw(t, "pieces")
		pieces = append(pieces, "\n")
		if got, want := hideIn(key, pieces...), strings.ReplaceAll(strings.Join(pieces, ""), key, hidden); got != want {
			t.Fatalf("%q of %q is %q, want %q", key, pieces, got, want)
		}
	})
}

func BenchmarkHide(b *testing.B) {
	event := []byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words of it\"}}\n\n")
	for _, n := range []int{len(event), 32 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			piece := bytes.Repeat(event, n/len(event))
			h := newHider("sk-ant-api03-" + strings.Repeat("x", 95))
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				h.pass(piece)
			}
		})
	}
}
