// Package boxd is the small program inside a box: it executes calls, spools their output, serves files, terminals and
// proxy listeners, and keeps the outcome of each mutating call until the server releases it.
//
// cmd/boxd, the package jail and the driver mem import it; mem runs it in the server's process. It imports
// golang.org/x/sys, the multiplexer yamux, the packages paths, durable and trim, the wire protocol and the vocabulary,
// but nothing else of the server. Invariant (I-10, I-11, I-12, I-14): a call id acts at most once in one life of the
// box (from the start of boxd to its end), and the outcome of the call can be read until the call is released.
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
	// Stdin, Stdout and Stderr belong to the caller, which closes them after Start.
	Stdin, Stdout, Stderr *os.File
	// TTY makes Stdin the controlling terminal of the process's new Unix session.
	TTY bool
	// Mark is a number that no other call has. All descendants of the child inherit it, so that
	// KillAll and Left also find those that have left the child's process group and session.
	Mark uint64
	// Layers are path rules that restrict the process and its descendants to fewer files than the box does.
	Layers []wire.Layer
	// Place is the place of the process's session in a shared box; nil in any other box.
	Place Place
}

// ExitStatus describes how a process ended.
type ExitStatus struct {
	// Code is the exit code; -1 if a signal ended the process.
	Code int
	// Signal is the number of the signal that ended the process; 0 if the process exited.
	Signal int
}

// Process is a process that Hands.Start has started. It is the leader of a Unix session of its own.
type Process interface {
	PID() int
	// Wait blocks until the process has ended. It may be called once.
	Wait() ExitStatus
}

// Hands is the operating system as boxd uses it. OSHands implements it for isolated boxes and for the driver host, the
// driver mem has an implementation of its own. Implementations must be safe for concurrent use.
type Hands interface {
	// Start starts a process. The error is KindNotFound if the program or the working directory does
	// not exist, KindDenied if the program may not be executed, and KindBusy if the box has reached its
	// limit of processes (pids). Other errors have other Kinds.
	Start(StartSpec) (Process, error)
	// Signal sends a signal to the process group that p leads.
	Signal(p Process, signal int) error
	// KillAll sends SIGKILL to all processes with the mark, until none is left or its patience ends.
	KillAll(mark uint64)
	// Left lists the living processes that have the mark. If they cannot be listed, it returns one
	// entry with the pid 0, whose name has the reason.
	Left(mark uint64) []wire.Process
	// Alive returns the number of first processes of running calls plus the number of processes whose
	// parent has ended. It is 0 only if no process lives in the box, and -1 if the number is not known.
	Alive() int
	// Processes lists all processes of the box except boxd.
	Processes() ([]wire.Process, error)
	// Do runs fn, a file operation, with the identity and confinement of a tool.
	Do(fn func() error) error
	// Gate(true) makes calls of Start wait. It returns when no start is in progress and no thread of boxd
	// would be frozen with the work leaf (the tools' cgroup). Gate(false) lets Start go on.
	Gate(closed bool)
	// Stats reads the counters of the box. A counter that cannot be read is -1.
	Stats() wire.Stats
	// OpenPTY opens both ends of a new pseudo-terminal.
	OpenPTY() (master, slave *os.File, err error)
}

// Place is the part of a shared box that only one session sees: its home and its temporary
// directories, at the usual paths, in a mount namespace of its own. A Place is safe for concurrent use.
type Place interface {
	// Do does the same as Forker.Do, but fn sees the files of the session.
	Do(fn func() error) error
	// Own runs fn with boxd's own rights; fn sees the files of the session.
	Own(fn func() error) error
	// End removes the place. It also kills the session's processes, if the kernel can limit signals to
	// them. The caller calls no other method during End or after it.
	End()
}

// Sharer is an optional interface of a Hands or a Forker, for boxes that several sessions share.
type Sharer interface {
	// Join makes the place of a session. mounts are detached mounts: first that of the session's home, then, if there is a
	// second one, that of its agent's directory. The caller closes them.
	Join(mounts []*os.File) (Place, error)
}

// Forker is the part of OSHands that differs between an isolated box and a host without isolation:
// everything from fork to exec. Package jail has the Forker of an isolated box, which forks on threads
// that are confined as long as they live. PlainForker is for a host.
type Forker interface {
	// Fork starts a process and returns its pid. The caller must wait for the end of the process.
	Fork(StartSpec) (pid int, err error)
	// Do runs fn on a thread that is confined like a tool, if the Forker confines tools.
	Do(fn func() error) error
	// Gate(true) makes calls of Fork wait, Gate(false) lets them go on; see Hands.Gate.
	Gate(closed bool)
	// Counter returns the content of a counter file of the work leaf (the tools' cgroup). The names of
	// these files are those of wire.Jail.Counters. ok is false if the file cannot be read.
	Counter(name string) (content string, ok bool)
}
