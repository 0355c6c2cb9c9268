// Package host is the driver of trusted sessions: it runs the same boxd as an ordinary process,
// without any isolation. Tools can do everything the server's user can; in a workspace of a server that runs as
// root, everything that the owner of the workspace's files can (ADR 0092).
//
// It owns the box's processes on the host: it starts them, sets their environment, and makes sure that none is left
// after a stop. Only app imports it. Invariant (I-18): it never claims to be a boundary, and what it starts gets only
// the variables of the server's environment that the allow table names. A root server starts nothing in a workspace
// as root: if the owner's identity cannot be set, no box starts.
package host

import (
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// Meaning is the warning about what this driver allows. Probe contains it, and so does the list of missing
// protections of each box that runs as the server's user.
const Meaning = "tools can do everything your user can do"

// Config configures a Driver. Home, Boxd, Now and Owner are required.
type Config struct {
	// Home is the data directory. The driver stores its records, sockets, logs and the boxd
	// program in Home/run/host (0700).
	Home string
	// Boxd returns the static boxd program, as boxd.Local does.
	Boxd func() (boxd.Program, error)
	// Environ is the server's environment; boxes get the variables that the allow table names.
	Environ []string
	// StartTimeout limits the time of a start, if its context allows more; 0 means 20 s.
	StartTimeout time.Duration
	Now          func() time.Time
	// Shown are directories of the data directory that every box may read. Optional.
	Shown []string
	// Owner is the owner id of the data directory: 16 hexadecimal digits.
	Owner string
}

const (
	op               = "driver.host"
	defaultStartTime = 20 * time.Second
)

func (c *Config) check() error {
	if c.Home == "" || c.Boxd == nil || c.Now == nil {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the fields Home, Boxd and Now of the host driver's Config are required")
	}
	if c.StartTimeout <= 0 {
		c.StartTimeout = defaultStartTime
	}
	return nil
}
