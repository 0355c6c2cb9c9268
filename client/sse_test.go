package client

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast"
)

func read(r io.Reader) (out []string, err error) {
	f := newFrames(r)
	for {
		fr, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, fr.Name+"="+string(fr.Data))
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("y", 200_000)
	for in, want := range map[string]string{
		"event: a\ndata: 1\n\n":                        "a=1",
		"data:1\n\ndata: 2\n\n":                        "=1|=2",
		"id: 5\r\nevent: a\r\ndata: 1\r\n\r\n":         "a=1",
		": comment\n\n: ping\n\nevent: a\ndata: 1\n\n": "a=1",
		"data: 1\ndata: 2\n\n":                         "=1\n2",
		"data\n\n":                                     "=",
		"event: only\n\ndata: x\n\n":                   "=x",
		"event: a\ndata: cut":                          "",
		"event: a\ndata: cut\n":                        "",
		"retry: 5\nunknown: z\ndata: 1\n\n":            "=1",
		"data: " + long + "\n\n":                       "=" + long,
		"\n\n\n":                                       "",
		"":                                             "",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			got, err := read(r)
			if strings.Join(got, "|") != want || err != io.ErrUnexpectedEOF {
				t.Errorf("%.40q %s: %.60q, %v", in, name, got, err)
			}
		}
	}
}

func TestFramesAreBounded(t *testing.T) {
	if _, err := read(io.MultiReader(strings.NewReader("data: "), endless{})); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
	if _, err := read(&lines{}); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
}

// endless is a line without end, lines a frame without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type lines struct{}

func (*lines) Read(p []byte) (int, error) {
	return copy(p, "data: "+strings.Repeat("x", max(0, len(p)-7))+"\n"), nil
}

func FuzzFrames(f *testing.F) {
	for _, s := range []string{"event: a\ndata: 1\n\n", "data", "\r\n\r\n", ":\n\ndata:\n\n", "id: 1\ndata: {}\n\nevent:"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, err := read(bytes.NewReader(data))
		if err != io.ErrUnexpectedEOF {
			t.Errorf("%v", err)
		}
		// How the bytes arrive makes no difference.
		pieces, _ := read(iotest.HalfReader(bytes.NewReader(data)))
		if strings.Join(whole, "|") != strings.Join(pieces, "|") {
			t.Errorf("%q and %q", whole, pieces)
		}
	})
}
