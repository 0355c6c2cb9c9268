// Package boxd is the small program inside a box: it executes calls, spools
// their output, serves files, terminals and proxy listeners, and remembers the
// outcome of each mutating call until the server releases it.
//
// It is linked only into cmd/boxd (and, in process, into driver/mem). It
// imports the standard library, golang.org/x/sys, the multiplexer, the wire
// protocol and the vocabulary: nothing of the server. Invariant (I-10, I-11, I-12, I-14): a call id acts
// at most once in one life of the box, and its outcome stays readable until
// released.
package boxd

import (
	"os"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// StartSpec says what to start. Files are dup'ed into the child as 0, 1, 2.
type StartSpec struct {
	// Path is absolute; Argv[0] may differ.
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Stdin, Stdout and Stderr are owned by the caller, who closes them after Start.
	Stdin, Stdout, Stderr *os.File
	// TTY makes Stdin the controlling terminal of a new session.
	TTY bool
	// Mark is unique per call and inherited by everything the child starts, so
	// that KillAll and Left find what left its process group and session.
	Mark uint64
	// Layers restrict the process and everything it starts to less than the box allows.
	Layers []wire.Layer
}

// ExitStatus is how a process ended.
type ExitStatus struct {
	// Code is the exit code, -1 when a signal ended it.
	Code int
	// Signal is the number of the signal that ended it, 0 otherwise.
	Signal int
}

// Process is a started process. Every process leads a session of its own.
type Process interface {
	PID() int
	// Wait blocks until the leader ended. It may be called once.
	Wait() ExitStatus
}

// Hands are how boxd acts: the operating system behind one interface, so that
// the hardened box, the host driver and the in-memory driver share all above.
// Safe for concurrent use.
type Hands interface {
	// Start starts a process. KindNotFound for a missing program or directory,
	// KindDenied for one that may not run, KindBusy when the box has no room for
	// another process (pids).
	Start(StartSpec) (Process, error)
	// Signal signals the process group that p leads.
	Signal(p Process, signal int) error
	// KillAll kills with SIGKILL everything that bears the mark, and returns when
	// nothing of it is left.
	KillAll(mark uint64)
	// Left lists what bears the mark and still runs.
	Left(mark uint64) []wire.Process
	// Processes lists every process of the box but boxd.
	Processes() ([]wire.Process, error)
	// Do runs fn with the identity and confinement tools have: for file operations.
	Do(fn func() error) error
	// Gate holds back (true) or admits (false) Start. Holding returns only when
	// no start is under way and no thread of boxd is inside the work leaf.
	Gate(closed bool)
	// Stats reads the box's counters; -1 for what cannot be read.
	Stats() wire.Stats
	// OpenPTY opens a terminal pair.
	OpenPTY() (master, slave *os.File, err error)
}

// Forker is the part of starting a process that differs between a hardened box
// and a plain host: everything from fork to exec. The hardened one lives in
// package jail; it runs on one permanently confined thread.
type Forker interface {
	// Fork starts spec and returns the child's pid. The caller reaps.
	Fork(StartSpec) (pid int, err error)
	// Do runs fn on a thread confined like a tool.
	Do(fn func() error) error
	// Gate is Hands.Gate.
	Gate(closed bool)
	// Counter reads a named cgroup counter file of the work leaf (see
	// wire.Jail.Counters); ok is false when there is none.
	Counter(name string) (content string, ok bool)
}
