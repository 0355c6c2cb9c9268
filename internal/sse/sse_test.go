package sse

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEventsAreRead(t *testing.T) {
	for _, tc := range []struct {
		stream string
		want   []string
		rest   string
	}{
		{"", nil, ""},
		{"event: a\ndata: 1\n\n: comment\n\nid: 3\ndata:2\r\ndata: 3\r\n\r\n", []string{"a 1", " 2\n3"}, ""},
		{"event: lost\n\ndata\n\n", []string{" "}, ""},
		{"data: 1\n\nevent: b\ndata: [DONE]", []string{" 1"}, "b [DONE]"},
		{"data: 1\n", nil, " 1"},
		{"data: " + strings.Repeat("x", 40<<10) + "\n\n", []string{" " + strings.Repeat("x", 40<<10)}, ""},
	} {
		for _, one := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
			r := NewReader(one(strings.NewReader(tc.stream)), 64<<10)
			var got []string
			e, err := r.Next()
			for ; err == nil; e, err = r.Next() {
				got = append(got, e.Name+" "+string(e.Data))
			}
			rest := ""
			if e.Name != "" || e.Data != nil {
				rest = e.Name + " " + string(e.Data)
			}
			if err != io.EOF || !slices.Equal(got, tc.want) || rest != tc.rest {
				t.Errorf("%.40q: %.40q, rest %.40q, %v", tc.stream, got, rest, err)
			}
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	for _, stream := range []string{
		"data: " + strings.Repeat("x", 70<<10) + "\n\n", ": " + strings.Repeat("x", 70<<10) + "\n\n",
		strings.Repeat("data: "+strings.Repeat("x", 1<<10)+"\n", 70),
	} {
		if e, err := NewReader(strings.NewReader(stream), 64<<10).Next(); err != ErrTooLarge || e.Data != nil {
			t.Errorf("%.20q: %d bytes, %v", stream, len(e.Data), err)
		}
	}
}
