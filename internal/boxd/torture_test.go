//go:build linux

package boxd_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ4_NothingTwiceUnderBrokenPipes: workers issue execs and writes; the pipe
// is cut at random moments and the token raised; every worker repeats its call
// with the same id until it has the outcome. Each line is there exactly once,
// each outcome is the right one.
func TestHZ4_NothingTwiceUnderBrokenPipes(t *testing.T) {
	b := startBox(t)
	const workers, calls = 8, 15
	s := &server{t: t, b: b}
	s.reconnect(nil)
	stop := make(chan struct{})
	var cutter, wg sync.WaitGroup
	cutter.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-stop:
				return
			default:
			}
			box, conn := s.now()
			for range rng.IntN(8) {
				_, _ = box.Stats(t.Context())
			}
			_ = conn.Close()
			<-box.Done()
		}
	})
	for w := range workers {
		wg.Go(func() {
			for i := range calls {
				call := newCall(t)
				line := fmt.Sprintf("w%d-%d", w, i)
				s.until(func(box *sandbox.Box) error {
					var out bytes.Buffer
					res, err := box.Exec(t.Context(), call, sh("echo "+line+" >> lines; echo "+line+"; exit "+fmt.Sprint(i)), sandbox.ExecOptions{Stdout: &out})
					if err == nil && (res.Code != i || out.String() != line+"\n") {
						t.Errorf("%s: %+v %q", line, res, out.String())
					}
					return err
				})
				write := newCall(t)
				s.until(func(box *sandbox.Box) error {
					a, err := box.Write(t.Context(), write, wire.WriteRequest{Path: line}, bytes.Repeat([]byte(line), 20_000))
					if err == nil && !a.Created {
						t.Errorf("%s was written twice", line)
					}
					return err
				})
				box, _ := s.now()
				box.Release(call.ID, write.ID)
			}
		})
	}
	wg.Wait()
	close(stop)
	cutter.Wait()
	got, err := os.ReadFile(filepath.Join(b.cfg.Workspace, "lines"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.FieldsSeq(string(got)) {
		seen[line]++
	}
	for w := range workers {
		for i := range calls {
			line := fmt.Sprintf("w%d-%d", w, i)
			if seen[line] != 1 {
				t.Errorf("%s is there %d times", line, seen[line])
			}
			if b, err := os.ReadFile(filepath.Join(b.cfg.Workspace, line)); err != nil || len(b) != 20_000*len(line) {
				t.Errorf("file %s: %d bytes, %v", line, len(b), err)
			}
		}
	}
	t.Logf("%d connections", s.token)
}

// server is a server whose pipe breaks; each new pipe has a higher token.
type server struct {
	t     *testing.T
	b     *box
	mu    sync.Mutex
	box   *sandbox.Box
	conn  net.Conn
	token uint64
}

func (s *server) now() (*sandbox.Box, net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box, s.conn
}

// reconnect replaces a broken pipe, once for all who found it broken.
func (s *server) reconnect(broken *sandbox.Box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box != broken {
		return
	}
	if broken != nil {
		_ = broken.Close()
	}
	conn := s.b.pipe()
	s.token++
	box, err := sandbox.Dial(context.WithoutCancel(s.t.Context()), "w-test", conn, s.token, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.t.Cleanup(func() { _ = box.Close() })
	s.box, s.conn = box, conn
}

// until repeats op over new pipes until it has an answer.
func (s *server) until(op func(*sandbox.Box) error) {
	for {
		box, _ := s.now()
		err := op(box)
		if err == nil {
			return
		}
		if !holdfast.IsKind(err, holdfast.KindUnavailable) && !holdfast.IsKind(err, holdfast.KindConflict) {
			s.t.Error(err)
			return
		}
		s.reconnect(box)
	}
}
