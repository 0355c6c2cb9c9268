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

// stand tells the driver that the jail is finished, and waits for the Claim, which gives this boxd its box. It is for
// a boxd that was started without a box id (a ready boot).
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

// warm does work before the Claim comes that would otherwise delay the box after it: package json prepares
// the type Claim, the runtime prepares for signals, and a garbage collection runs.
func warm(claim *wire.Claim) {
	_ = json.Unmarshal([]byte(`{}`), claim)
	// This channel is only there to start the runtime's signal handling; nobody reads it. The code that waits for child
	// processes listens on another channel.
	signal.Notify(make(chan os.Signal, 1), unix.SIGCHLD)
	runtime.GC()
}

// warmHello does work that would otherwise delay the first connection: package json prepares the types Hello and
// Welcome, and the runtime prepares for pipes. It runs concurrently with the rest of the start.
func warmHello() {
	_ = json.Unmarshal([]byte(`{}`), new(wire.Hello))
	_, _ = json.Marshal(wire.Welcome{})
	if r, w, err := os.Pipe(); err == nil {
		_ = errors.Join(r.Close(), w.Close())
	}
}
