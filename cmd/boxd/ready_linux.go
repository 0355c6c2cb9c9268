package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// stand is the life of a ready boot, behind its walls, until it has its box.
func stand(c *wire.Control, cfg *wire.Config, st *wire.JailStatus) error {
	var claim wire.Claim
	warm(&claim)
	if err := c.Tell(*st); err != nil {
		return err
	}
	if err := c.Receive(&claim); err != nil {
		return err
	}
	cfg.Box, cfg.Env, cfg.SpoolBytes, cfg.OrphanAfter = claim.Box, claim.Env, claim.SpoolBytes, claim.OrphanAfter
	st.InForce, st.Missing = append(st.InForce, claim.InForce...), append(st.Missing, claim.Missing...)
	return nil
}

// warm does what would otherwise be done once the claim is here: what JSON has to
// know of the type, what a signal needs of the runtime, and the collector's work.
func warm(claim *wire.Claim) {
	_ = json.Unmarshal([]byte(`{}`), claim)
	// It keeps one signal and drops the rest: the hands listen on a channel of their own.
	signal.Notify(make(chan os.Signal, 1), unix.SIGCHLD)
	runtime.GC()
}

// warmHello is the same for the first connection, beside all that comes before it.
func warmHello() {
	_ = json.Unmarshal([]byte(`{}`), new(wire.Hello))
	_, _ = json.Marshal(wire.Welcome{})
	if r, w, err := os.Pipe(); err == nil {
		_ = errors.Join(r.Close(), w.Close())
	}
}
