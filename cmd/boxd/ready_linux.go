package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// maxPassed bounds the descriptors that come with a claim.
const maxPassed = 32

// isReady reports whether this is a ready boot: a socket is where others have
// their configuration.
func isReady() bool {
	var st unix.Stat_t
	return unix.Fstat(configFD, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// stand is the life of a ready boot until it has its box. A server that goes away
// before ends it: io.EOF.
func stand() (cfg *wire.Config, forker boxd.Forker, inForce, missing []string, err error) {
	c := &control{}
	var first wire.Config
	if err := c.receive(&first); err != nil {
		return nil, nil, nil, nil, err
	}
	p, err := jail.Prepare(&first)
	if first.Jail != nil {
		first.Jail.Mounts = nil
	}
	var claim wire.Claim
	warm(&claim)
	st := wire.JailStatus{}
	if err != nil {
		st.Err = wire.AsError(err)
	}
	if werr := wire.WriteJSON(c, wire.FrameAnswer, st); err == nil {
		err = werr
	}
	if err != nil {
		return nil, nil, nil, nil, err
	}
	if err := c.receive(&claim); err != nil {
		return nil, nil, nil, nil, err
	}
	if cfg, err = claimed(&claim, c.passed); err != nil {
		return nil, nil, nil, nil, err
	}
	forker, inForce, missing, err = p.Enter(cfg)
	return cfg, forker, inForce, missing, err
}

// warm does what would otherwise be done once the claim is here: what JSON has to
// know of the types, what a signal and the first connection need of the runtime,
// and the collector's work.
func warm(claim *wire.Claim) {
	_ = json.Unmarshal([]byte(`{}`), claim)
	_ = json.Unmarshal([]byte(`{}`), new(wire.Hello))
	_, _ = json.Marshal(wire.Welcome{})
	// It keeps one signal and drops the rest: the hands listen on a channel of their own.
	signal.Notify(make(chan os.Signal, 1), unix.SIGCHLD)
	if r, w, err := os.Pipe(); err == nil {
		_ = errors.Join(r.Close(), w.Close())
	}
	runtime.GC()
}

// claimed puts descriptors for their indexes.
func claimed(c *wire.Claim, passed []int) (*wire.Config, error) {
	if c.Config.Jail == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "claim", "it describes no jail")
	}
	var bad error
	at := func(i int) int {
		if i < 0 || i >= len(passed) {
			bad = holdfast.Errorf(holdfast.KindInvalid, "claim", "descriptor %d of %d", i, len(passed))
			return -1
		}
		return passed[i]
	}
	cfg := &c.Config
	cfg.ListenFD = at(cfg.ListenFD)
	cfg.State = fmt.Sprintf("/proc/self/fd/%d", at(c.State))
	cfg.Jail.StatusFD = configFD
	for i := range cfg.Jail.Mounts {
		m := &cfg.Jail.Mounts[i]
		m.Late = true
		if m.TreeFD >= 0 {
			m.TreeFD = at(m.TreeFD)
		}
	}
	return cfg, bad
}

// control is the server's socket of a ready boot. It blocks its thread, there is
// nothing else to do; passed are the descriptors that came.
type control struct{ passed []int }

func (c *control) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		m, err := unix.Write(configFD, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
	}
	return len(b), nil
}

func (c *control) Read(b []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxPassed))
	for {
		n, oobn, _, _, err := unix.Recvmsg(configFD, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, c.keep(oob[:oobn])
	}
}

func (c *control) keep(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return err
		}
		c.passed = append(c.passed, fds...)
	}
	return nil
}

// receive reads one message into v.
func (c *control) receive(v any) error {
	var all strings.Builder
	for {
		t, b, err := wire.ReadFrame(c)
		if err != nil {
			return err
		}
		if all.Write(b); all.Len() > maxConfig {
			return holdfast.Errorf(holdfast.KindTooLarge, "config", "over %d bytes", maxConfig)
		}
		if t != wire.FrameData {
			break
		}
	}
	dec := json.NewDecoder(strings.NewReader(all.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %s", holdfast.Quote(all.String()), err.Error())
	}
	return nil
}
