package pool_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// stilled are pipes whose far ends can be made to stand still: from then on writes succeed and
// nothing comes back.
type stilled struct {
	mu    sync.Mutex
	conns []*stillConn
}

func (d *stilled) pipe(conn net.Conn) net.Conn {
	c := &stillConn{Conn: conn, still: make(chan struct{}), closed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
	return c
}

// still makes the far ends of all present pipes stand still.
func (d *stilled) still() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.once.Do(func() { close(c.still) })
	}
}

type stillConn struct {
	net.Conn
	once, end     sync.Once
	still, closed chan struct{}
}

func (c *stillConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.still:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *stillConn) Write(p []byte) (int, error) {
	select {
	case <-c.still:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *stillConn) Close() error {
	c.end.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// brief is the patience of tests in real time.
var brief = sandbox.Patience{Silence: 2 * time.Second, Grace: 2 * time.Second}

// stillRig is a rig whose boxes can be made to stand still.
func stillRig(t *testing.T, p sandbox.Patience) (*rig, *stilled) {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir()}
	d := &stilled{}
	r.cfg = pool.Config{Token: 1, FreezeAfter: -1, StopAfter: -1, Patience: p}
	r.pipe = d.pipe
	r.d = mem.New(mem.Config{})
	r.open(false)
	return r, d
}

// TestEachOperationEndsInABoxThatStandsStill: an operation ends within the time that its kind of
// operation has, and the next claim gets another box.
func TestEachOperationEndsInABoxThatStandsStill(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		do     func(r *rig, b *sandbox.Box) error
	}{
		"a process with a timeout": {15*time.Second + 3*time.Second, func(r *rig, b *sandbox.Box) error {
			_, err := b.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "true", TimeoutMS: 5000}, sandbox.ExecOptions{})
			return err
		}},
		"a process without one": {20 * time.Second, func(r *rig, b *sandbox.Box) error {
			_, err := b.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{})
			return err
		}},
		"a read": {63 * time.Second, func(_ *rig, b *sandbox.Box) error {
			_, err := b.Read(context.Background(), wire.ReadRequest{Path: "f"}, io.Discard)
			return err
		}},
		"a long write": {63 * time.Second, func(r *rig, b *sandbox.Box) error {
			_, err := b.Write(context.Background(), r.call(), wire.WriteRequest{Path: "f"}, make([]byte, 1<<20))
			return err
		}},
		"a question": {63 * time.Second, func(_ *rig, b *sandbox.Box) error {
			_, err := b.Processes(context.Background())
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, d := stillRig(t, sandbox.Patience{})
				h := r.get("a")
				d.still()
				began := time.Now()
				err := c.do(r, h.Box)
				if took := time.Since(began); took != c.within {
					t.Errorf("ended after %s, want %s", took, c.within)
				}
				if !errors.Is(err, sandbox.ErrLost) || holdfast.HintOf(err) == "" {
					t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
				}
				boot := h.Box.Boot()
				began = time.Now()
				next := r.get("a")
				if took := time.Since(began); took != 0 || next.Box.Boot() == boot {
					t.Errorf("the next box came after %s: %q after %q", took, next.Box.Boot(), boot)
				}
				r.sh(next.Box, "true")
				r.equal("told", r.told(), "started lost started")
				h.Release()
				next.Release()
			})
		})
	}
}

// TestAProcessEndsInABoxThatStandsStill: an exec ends when its box stops answering after the
// process began. It runs in real time, because processes of the mem driver block the clock of a
// bubble.
func TestAProcessEndsInABoxThatStandsStill(t *testing.T) {
	for name, timeout := range map[string]int64{"with a timeout": 100, "without": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, d := stillRig(t, brief)
			h := r.get("a")
			_, err := h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "sleep 1000", TimeoutMS: timeout},
				sandbox.ExecOptions{Started: func(wire.Started) { d.still() }})
			if !errors.Is(err, sandbox.ErrLost) || errors.Is(err, sandbox.ErrUnsent) || holdfast.HintOf(err) == "" {
				t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
			}
			boot := h.Box.Boot()
			h.Release()
			if next := r.use("a"); next == boot {
				t.Error("the same box")
			}
		})
	}
}

// TestALivingBoxIsWaitedFor: a box is not given up because a process without a timeout writes
// nothing for long, or because the reader of its output is slow.
func TestALivingBoxIsWaitedFor(t *testing.T) {
	t.Run("silent process", func(t *testing.T) {
		t.Parallel()
		r, _ := stillRig(t, brief)
		h := r.get("a")
		defer h.Release()
		res, err := h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "sleep 7"}, sandbox.ExecOptions{})
		if err != nil || res.Class != holdfast.ExitOK {
			t.Errorf("%+v %v", res, err)
		}
		r.equal("told", r.told(), "started")
	})
	t.Run("slow reader", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, _ := stillRig(t, sandbox.Patience{})
			h := r.get("a")
			defer h.Release()
			r.sh(h.Box, "echo kept > f")
			if _, err := h.Box.Read(context.Background(), wire.ReadRequest{Path: "f"}, slow{}); err != nil {
				t.Error(err)
			}
			r.equal("told", r.told(), "started")
		})
	})
}

type slow struct{}

func (slow) Write(p []byte) (int, error) {
	pass(time.Hour)
	return len(p), nil
}

// TestAFrozenBoxThatStandsStillIsReplaced: a box that cannot be thawed does not keep its
// place for ever.
func TestAFrozenBoxThatStandsStillIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, d := stillRig(t, sandbox.Patience{})
		boot := r.use("a")
		if err := r.p.Freeze(context.Background(), "w-a"); err != nil {
			t.Fatal(err)
		}
		d.still()
		began := time.Now()
		if next := r.use("a"); next == boot {
			t.Error("the same box")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the next box came after %s", took)
		}
	})
}

// TestFreezingABoxThatStandsStillEnds: whoever pauses a session does not wait for its box.
func TestFreezingABoxThatStandsStillEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, d := stillRig(t, sandbox.Patience{})
		boot := r.use("a")
		d.still()
		began := time.Now()
		err := r.p.Freeze(context.Background(), "w-a")
		if took := time.Since(began); took > 20*time.Second || !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("ended after %s: %v", took, err)
		}
		if next := r.use("a"); next == boot || time.Since(began) > 20*time.Second {
			t.Errorf("the next box came after %s", time.Since(began))
		}
	})
}

// TestACallToADeadBoxIsUnsent: the box ended before it received the call.
func TestACallToADeadBoxIsUnsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := stillRig(t, sandbox.Patience{})
		h := r.get("a")
		defer h.Release()
		if err := h.Box.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := h.Box.Exec(context.Background(), r.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{})
		if !errors.Is(err, sandbox.ErrUnsent) || !errors.Is(err, sandbox.ErrLost) {
			t.Errorf("%v", err)
		}
	})
}
