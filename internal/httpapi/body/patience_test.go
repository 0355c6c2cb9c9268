package body

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// conn is a connection that notes its read deadlines.
type conn struct {
	http.ResponseWriter
	read []time.Time
}

func (c *conn) SetReadDeadline(t time.Time) error { c.read = append(c.read, t); return nil }

// trickle gives a piece each time, and lets time pass.
type trickle struct {
	piece int
	tick  func()
}

func (s *trickle) Read(p []byte) (int, error) {
	s.tick()
	return min(s.piece, len(p)), nil
}

func (s *trickle) Close() error { return nil }

// TestTricklingSenderIsCut: a byte now and then keeps no body alive, while one
// that really sends may take as long as it needs.
func TestTricklingSenderIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		piece int
		every time.Duration
		cut   bool
	}{
		"a byte every ten seconds": {1, 10 * time.Second, true},
		"1 KiB a second":           {1 << 10, time.Second, true},
		"32 KiB a second":          {32 << 10, time.Second, false},
		"silence":                  {0, 31 * time.Second, true},
	} {
		now := time.Unix(1_700_000_000, 0)
		w := &conn{}
		b := Patient(&trickle{c.piece, func() { now = now.Add(c.every) }}, http.NewResponseController(w),
			func() time.Time { return now }, 30*time.Second)
		cut := false
		for range 3600 {
			if _, err := b.Read(make([]byte, 64<<10)); err != nil {
				t.Fatal(err)
			}
			// The connection would have failed the read that passed its deadline.
			if cut = now.After(w.read[len(w.read)-1]); cut {
				break
			}
		}
		if cut != c.cut {
			t.Errorf("%s: cut %t after %s", name, cut, now.Sub(time.Unix(1_700_000_000, 0)))
		}
	}
}

// torn is a body that breaks off.
type torn struct{ err error }

func (t torn) Read([]byte) (int, error) { return 0, t.err }
func (torn) Close() error               { return nil }

// TestABrokenBodyIsARefusal: the error of a body that did not arrive keeps its text for
// whoever reads it, and is a refusal with a hint for the sender.
func TestABrokenBodyIsARefusal(t *testing.T) {
	b := Patient(torn{io.ErrUnexpectedEOF}, http.NewResponseController(&conn{}), time.Now, time.Minute)
	_, err := io.ReadAll(b)
	if !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != io.ErrUnexpectedEOF.Error() {
		t.Errorf("read: %v", err)
	}
	for _, err := range []error{err, Failure(err, 10)} {
		if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) != "send the request again" {
			t.Errorf("%v: kind %s, hint %q", err, holdfast.KindOf(err), holdfast.HintOf(err))
		}
	}
}
