// Package boxd is the small program inside a box: it executes calls, spools
// their output, serves files, terminals and proxy listeners, and remembers the
// outcome of each mutating call until the server releases it.
//
// It is linked only into cmd/boxd (and, in process, into driver/mem). It
// imports the standard library, golang.org/x/sys, the multiplexer, the wire
// protocol and the vocabulary: nothing of the server. Invariant (I-10, I-11, I-12, I-14): a call
// id acts at most once in one life of the box (from boxd's start to its end), and its outcome
// stays readable until it is released.
package boxd

import (
	"os"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// StartSpec describes the process to start. Its files are duplicated to the child's descriptors 0, 1 and 2.
type StartSpec struct {
	// Path is the program's absolute path; Argv[0] may be another name.
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Stdin, Stdout and Stderr stay the caller's, who closes them after Start.
	Stdin, Stdout, Stderr *os.File
	// TTY makes Stdin the controlling terminal of a new session.
	TTY bool
	// Mark is a number unique to the call. Every process that the child starts inherits it, so
	// that KillAll and Left find also those that left the process group and session.
	Mark uint64
	// Layers restrict the process and its descendants to less than the box allows.
	Layers []wire.Layer
	// Place is the place of the process's session in a shared box; nil in any other box.
	Place Place
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
	// Wait blocks until the process has ended. It may be called once.
	Wait() ExitStatus
}

// Hands is the operating system as boxd uses it. The hardened box, the host driver and the
// in-memory driver each implement it and share all code above. Implementations must be safe for
// concurrent use.
type Hands interface {
	// Start starts a process. It fails with KindNotFound for a missing program or directory,
	// KindDenied for a program that may not be executed, KindBusy when the box is at its limit of
	// processes (pids).
	Start(StartSpec) (Process, error)
	// Signal sends a signal to the process group that p leads.
	Signal(p Process, signal int) error
	// KillAll sends SIGKILL to every process that has the mark and returns when none of them is
	// left.
	KillAll(mark uint64)
	// Left lists the running processes that have the mark.
	Left(mark uint64) []wire.Process
	// Alive counts the first processes of running calls, and the processes whose parent has ended.
	// It is 0 only if no process lives in the box; -1 means that it is not known.
	Alive() int
	// Processes lists every process of the box but boxd.
	Processes() ([]wire.Process, error)
	// Do runs fn with the identity and confinement of a tool. File operations use it.
	Do(fn func() error) error
	// Gate blocks Start (true) or allows it again (false). Blocking returns once no start is in
	// progress and no thread of boxd is inside the work leaf (the tools' cgroup).
	Gate(closed bool)
	// Stats reads the box's counters. A counter that cannot be read is -1.
	Stats() wire.Stats
	// OpenPTY opens both ends of a new pseudo-terminal.
	OpenPTY() (master, slave *os.File, err error)
}

// Place is the part of a shared box that only one session sees: its home and its temporary
// directories, at the usual paths, in a mount namespace of its own. Safe for concurrent use.
type Place interface {
	// Do runs fn like Forker.Do, but with the files that the session sees.
	Do(fn func() error) error
	// Own runs fn with boxd's own rights and the files that the session sees.
	Own(fn func() error) error
	// End removes the place, and kills the session's processes if the kernel allows telling them
	// apart from those of other sessions. No other method is called meanwhile or later.
	End()
}

// Sharer is an optional interface of Hands and Forker, for boxes that several sessions share.
type Sharer interface {
	// Join makes the place of a session. mounts are detached mounts: of the session's home, and if there is a
	// second one, of its agent's directory. The caller closes them.
	Join(mounts []*os.File) (Place, error)
}

// Forker is the part of starting a process that differs between a hardened box and a plain host:
// everything from fork to exec. The Forker of a hardened box is in package jail; it forks on
// threads that are confined for good.
type Forker interface {
	// Fork starts spec's process and returns its pid. The caller waits for the process.
	Fork(StartSpec) (pid int, err error)
	// Do runs fn on a thread that is confined like a tool.
	Do(fn func() error) error
	// Gate blocks Fork (true) or allows it again (false), as Hands.Gate does for Start.
	Gate(closed bool)
	// Counter reads a cgroup counter file of the work leaf (the tools' cgroup) by the name that
	// wire.Jail.Counters gives it; ok is false when the file cannot be read.
	Counter(name string) (content string, ok bool)
}
