package stream

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestCursorPrefersTheHeader(t *testing.T) {
	for _, c := range []struct {
		head, query string
		want        int64
		ok          bool
	}{
		{"", "", 0, true},
		{"", "0", 0, true},
		{"", "17", 17, true},
		{"18", "17", 18, true},
		{"9223372036854775807", "", 9223372036854775807, true},
		{"9223372036854775808", "", 0, false},
		{"18", "x", 0, false},
		{"x", "17", 0, false},
		{"017", "", 0, false},
		{"+1", "", 0, false},
		{"-0", "", 0, false},
		{" 1", "", 0, false},
		{"1\n", "", 0, false},
		{"١", "", 0, false},
	} {
		got, err := Cursor(c.head, c.query)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q %q: %d %v", c.head, c.query, got, err)
		}
		if err != nil && (!holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "") {
			t.Errorf("%q: %v", c.head, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "01", "9223372036854775808", "1e9", "\xff", "0x10", "1_000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseCursor("after", s)
		switch {
		case err == nil && s != "" && strconv.FormatInt(n, 10) != s:
			t.Errorf("%q was taken for %d", s, n)
		case err == nil && n < 0:
			t.Errorf("%q gave %d", s, n)
		case err != nil && (n != 0 || !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), holdfast.Quote(s))):
			t.Errorf("%q: %d %v", s, n, err)
		}
	})
}

func TestTypes(t *testing.T) {
	got, err := Types(" turn.completed, notice")
	if err != nil || !slices.Equal(got, []holdfast.EventType{holdfast.EventTurnCompleted, holdfast.EventNotice}) {
		t.Errorf("%v %v", got, err)
	}
	for _, s := range []string{",", "notice,", "Notice", "*", "\x00"} {
		if _, err := Types(s); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
