package main

import (
	"encoding/json"
	"errors"
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

// isReady reports whether this is a ready boot: a socket is where others have
// their configuration.
func isReady() bool {
	var st unix.Stat_t
	return unix.Fstat(configFD, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// stand is the life of a ready boot until it has its box. A server that goes away
// before ends it: io.EOF.
func stand() (cfg *wire.Config, forker boxd.Forker, inForce, missing []string, err error) {
	c := control{}
	cfg = new(wire.Config)
	if err := c.receive(cfg); err != nil {
		return nil, nil, nil, nil, err
	}
	forker, inForce, missing, err = jail.Enter(cfg)
	st := wire.JailStatus{InForce: inForce, Missing: missing}
	if err != nil {
		st.Err = wire.AsError(err)
	} else {
		cfg.Jail.Mounts = nil
	}
	var claim wire.Claim
	warm(&claim)
	if werr := wire.WriteJSON(c, wire.FrameAnswer, st); err == nil {
		err = werr
	}
	if err == nil {
		err = c.receive(&claim)
	}
	if err != nil {
		return nil, nil, nil, nil, err
	}
	cfg.Box, cfg.Env, cfg.SpoolBytes, cfg.OrphanAfter = claim.Box, claim.Env, claim.SpoolBytes, claim.OrphanAfter
	cfg.Jail.StatusFD = configFD
	return cfg, forker, append(inForce, claim.InForce...), append(missing, claim.Missing...), nil
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

// control is the server's socket of a ready boot. It blocks its thread: there is
// nothing else to do.
type control struct{}

func (control) Write(b []byte) (int, error) {
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

func (control) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(configFD, b)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return max(n, 0), err
	}
}

// receive reads one message into v.
func (c control) receive(v any) error {
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
