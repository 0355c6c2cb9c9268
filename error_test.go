package holdfast_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// TestKinds holds the two tables of the contract: kinds are append-only and
// meet HTTP status and exit code in one place.
func TestKinds(t *testing.T) {
	want := map[holdfast.Kind][2]int{
		"invalid": {400, 2}, "unauthenticated": {401, 5}, "denied": {403, 5}, "not_found": {404, 3},
		"conflict": {409, 4}, "gone": {410, 4}, "too_large": {413, 1}, "busy": {429, 4},
		"internal": {500, 1}, "unavailable": {503, 6},
	}
	for k, w := range want {
		if k.HTTPStatus() != w[0] || k.ExitCode() != w[1] {
			t.Errorf("%s: status %d, exit %d; want %v", k, k.HTTPStatus(), k.ExitCode(), w)
		}
	}
	for _, k := range holdfast.Words[holdfast.Kind]() {
		if _, ok := want[k]; !ok {
			t.Errorf("kind %s is not in the contract's table", k)
		}
	}
	if len(holdfast.Words[holdfast.Kind]()) != len(want) {
		t.Errorf("there are %d kinds", len(holdfast.Words[holdfast.Kind]()))
	}
	if k := holdfast.Kind("new"); k.HTTPStatus() != 500 || k.ExitCode() != 1 {
		t.Error("an unknown kind is not an internal error")
	}
}

func TestErrors(t *testing.T) {
	err := holdfast.Errorf(holdfast.KindNotFound, "session.show", "no session %s: %w", holdfast.Quote("x"), io.EOF)
	if err.Error() != `session.show: no session "x": EOF` || !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	hinted := err.WithHint("holdfast session %s", "list")
	if hinted.Hint != "holdfast session list" || err.Hint != "" {
		t.Errorf("hints: %q, and %q on the original", hinted.Hint, err.Hint)
	}
	wrapped := fmt.Errorf("while testing: %w", hinted)
	if holdfast.KindOf(wrapped) != holdfast.KindNotFound || holdfast.HintOf(wrapped) != hinted.Hint || !holdfast.IsKind(wrapped, holdfast.KindNotFound) {
		t.Errorf("through a wrap: %s, %q", holdfast.KindOf(wrapped), holdfast.HintOf(wrapped))
	}
	outer := holdfast.Errorf(holdfast.KindConflict, "outer", "cannot: %w", hinted)
	if holdfast.KindOf(outer) != holdfast.KindConflict || holdfast.HintOf(outer) != hinted.Hint {
		t.Errorf("the outer kind and the inner hint: %s, %q", holdfast.KindOf(outer), holdfast.HintOf(outer))
	}
	if holdfast.KindOf(nil) != "" || holdfast.HintOf(nil) != "" || holdfast.IsKind(nil, "") {
		t.Error("nil has a kind")
	}
	if holdfast.KindOf(io.EOF) != holdfast.KindInternal || holdfast.HintOf(io.EOF) != "" {
		t.Error("a foreign error is not internal")
	}
	for _, c := range []struct {
		err  holdfast.Error
		want string
	}{
		{holdfast.Error{Op: "op", Err: io.EOF}, "op: EOF"},
		{holdfast.Error{Kind: holdfast.KindBusy}, "busy"},
		{holdfast.Error{Msg: "m"}, "m"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%+v renders as %q", c.err, c.err.Error())
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[31mred\x00\n")
	f.Add(strings.Repeat("ä", 60))
	f.Fuzz(func(t *testing.T, s string) {
		q := holdfast.Quote(s)
		if len(q) > 80*10+10 || !utf8.ValidString(q) {
			t.Fatalf("%d bytes become %d: %q", len(s), len(q), q)
		}
		for _, r := range q {
			if r < ' ' || r == 0x7f {
				t.Fatalf("%q holds a control character", q)
			}
		}
	})
}
