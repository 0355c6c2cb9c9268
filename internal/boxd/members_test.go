//go:build linux

package boxd_test

import (
	"encoding/json"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// sharing are hands whose places see the same files as everything else.
type sharing struct {
	*boxd.OSHands
	joined, ended atomic.Int64
	// in receives once for each Do of a place, which then waits for out.
	in, out chan struct{}
}

func (s *sharing) Join([]*os.File) (boxd.Place, error) {
	s.joined.Add(1)
	return &samePlace{s}, nil
}

type samePlace struct{ s *sharing }

func (p *samePlace) Do(fn func() error) error {
	if p.s.in != nil {
		p.s.in <- struct{}{}
		<-p.s.out
	}
	return fn()
}
func (p *samePlace) Own(fn func() error) error { return fn() }
func (p *samePlace) End()                      { p.s.ended.Add(1) }

func sharedBy(s *sharing) option {
	return func(c *boxd.Config) {
		s.OSHands = hands()
		c.Hands, c.Jail = s, &wire.Jail{Shared: &wire.Shared{}}
	}
}

// join sends a join with so many files, and returns boxd's answer.
func (b *box) join(h wire.Hello, files int) error {
	b.t.Helper()
	conn := b.pipe().(*net.UnixConn)
	defer conn.Close()
	if err := wire.WriteJSON(conn, wire.FrameHello, h); err != nil {
		b.t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.t.Fatal(err)
	}
	defer null.Close()
	var fds []int
	for range files {
		fds = append(fds, int(null.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
		b.t.Fatal(err)
	}
	_, text, err := wire.ReadFrame(conn)
	if err != nil {
		b.t.Fatal(err)
	}
	var w wire.Welcome
	if err := json.Unmarshal(text, &w); err != nil {
		b.t.Fatal(err)
	}
	if w.Err != nil {
		return w.Err.Err("join")
	}
	if w.Boot != b.srv.Boot() {
		b.t.Errorf("the answer %+v names another boot than %s", w, b.srv.Boot())
	}
	return nil
}

func hello(token uint64, session holdfast.SessionID) wire.Hello {
	return wire.Hello{Version: wire.Version, Token: token, Join: &wire.Join{Session: session}}
}

// TestJoin: only the connected server lets a session join, with one or two files, and each session once;
// no join replaces the server's connection.
func TestJoin(t *testing.T) {
	s := &sharing{}
	b := startBox(t, sharedBy(s))
	server := b.dial(7)
	session := holdfast.SessionID(newID(t))
	old := hello(7, session)
	old.Version++
	for what, bad := range map[string]struct {
		hello wire.Hello
		files int
		kind  holdfast.Kind
	}{
		"a stale token":   {hello(6, session), 1, holdfast.KindConflict},
		"a later token":   {hello(8, session), 1, holdfast.KindConflict},
		"no file":         {hello(7, session), 0, holdfast.KindInvalid},
		"three files":     {hello(7, session), 3, holdfast.KindInvalid},
		"no session":      {hello(7, ""), 1, holdfast.KindInvalid},
		"another version": {old, 1, holdfast.KindInvalid},
	} {
		if err := b.join(bad.hello, bad.files); !holdfast.IsKind(err, bad.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for files := range 2 {
		if err := b.join(hello(7, session), files+1); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.joined.Load(); n != 1 {
		t.Errorf("%d places", n)
	}
	run(t, server.Of(session), sh("true"), sandbox.ExecOptions{})
	run(t, server, sh("true"), sandbox.ExecOptions{})
	_, err := server.Of(holdfast.SessionID(newID(t))).Exec(t.Context(), newCall(t), sh("true"), sandbox.ExecOptions{})
	wantKind(t, err, holdfast.KindUnavailable, "not joined")

	plain := startBox(t)
	server = plain.dial(7)
	if err := plain.join(hello(7, session), 1); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a session joined a box that is not shared: %v", err)
	}
	run(t, server.Of(session), sh("true"), sandbox.ExecOptions{})
}

// TestLeaveWaitsForOperations: a place ends after the operations that use it, and no later one
// begins.
func TestLeaveWaitsForOperations(t *testing.T) {
	s := &sharing{in: make(chan struct{}), out: make(chan struct{})}
	b := startBox(t, sharedBy(s))
	session := holdfast.SessionID(newID(t))
	server := b.dial(1)
	if err := b.join(hello(1, session), 1); err != nil {
		t.Fatal(err)
	}
	one := server.Of(session)
	read, left := make(chan error, 1), make(chan error, 2)
	go func() { _, err := one.Stat(t.Context(), wire.PathRequest{Path: "/"}); read <- err }()
	<-s.in
	for range 2 {
		go func() { left <- one.Leave(t.Context(), wire.LeaveRequest{}) }()
	}
	eventually(t, "new operations are refused", func() bool {
		_, err := one.Exec(t.Context(), newCall(t), wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Fatal(err)
		}
		err = b.join(hello(1, session), 1)
		return holdfast.IsKind(err, holdfast.KindBusy)
	})
	_, err := one.Stat(t.Context(), wire.PathRequest{Path: "/"})
	wantKind(t, err, holdfast.KindUnavailable)
	if n := s.ended.Load(); n != 0 {
		t.Fatal("the place ended below an operation")
	}
	s.out <- struct{}{}
	if err := <-read; err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
	if n := s.ended.Load(); n != 1 {
		t.Errorf("the place ended %d times", n)
	}
	if err := server.Leave(t.Context(), wire.LeaveRequest{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Error(err)
	}
}
