package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Op names an operation.
type Op string

// The operations. "mutates" ones carry a call id and are held until released.
const (
	OpExec    Op = "exec"    // mutates; ExecRequest -> Started, output, ExecResult
	OpCalls   Op = "calls"   // -> CallsAnswer
	OpRelease Op = "release" // -> Empty: there is nothing to do but what Request.Release says
	OpKill    Op = "kill"    // KillRequest -> Empty
	OpTake    Op = "take"    // TakeRequest -> Empty
	OpRead    Op = "read"    // ReadRequest -> data frames, ReadAnswer
	OpWrite   Op = "write"   // mutates; WriteRequest, data frames, EOF -> WriteAnswer
	OpEdit    Op = "edit"    // mutates; EditRequest -> EditAnswer
	OpStat    Op = "stat"    // PathRequest -> FileInfo
	OpList    Op = "list"    // ListRequest -> ListAnswer
	OpGlob    Op = "glob"    // GlobRequest -> GlobAnswer
	OpGrep    Op = "grep"    // GrepRequest -> GrepAnswer
	OpRemove  Op = "remove"  // mutates; RemoveRequest -> Empty
	OpMkdir   Op = "mkdir"   // mutates; MkdirRequest -> Empty
	OpRename  Op = "rename"  // mutates; RenameRequest -> Empty
	OpPack    Op = "pack"    // PackRequest -> data frames of a tar archive, Copied
	OpUnpack  Op = "unpack"  // UnpackRequest, data frames of a tar archive, EOF -> Copied
	OpStats   Op = "stats"   // -> Stats
	OpPS      Op = "ps"      // -> PSAnswer
	OpGate    Op = "gate"    // GateRequest -> Empty: hold or admit forks around a freeze
	OpListen  Op = "listen"  // ListenRequest -> Empty; accepted connections come as OpAccepted streams
	OpWatch   Op = "watch"   // WatchRequest -> Changes
	OpStop    Op = "stop"    // StopRequest -> StopAnswer: end everything, flush outcomes, exit

	// OpAccepted is the request of a stream that boxd opens: AcceptedRequest,
	// then the raw bytes of the accepted connection, unframed, both ways.
	OpAccepted Op = "accepted"
)

// Request is the first frame of a stream. Body is the JSON of the operation's
// request type.
type Request struct {
	Op Op `json:"op"`
	// Call identifies a mutating operation. Issuing the same Call again never
	// acts again: it attaches to the running one or returns the held outcome.
	Call holdfast.CallID `json:"call,omitempty"`
	// Session is whose operation it is: boxd keeps the calls and listeners of each session
	// apart. Empty is the server itself, which sees and releases those of all.
	Session holdfast.SessionID `json:"session,omitempty"`
	// Hash is ArgumentHash of the operation; the same Call with another Hash is
	// refused with conflict.
	Hash string `json:"hash,omitempty"`
	// Release are finished calls whose outcome is committed: boxd forgets them
	// before it serves the operation. Unknown ids are fine, and so are ids of another
	// session, which stay.
	Release []Released `json:"release,omitempty"`
	// Scope holds an operation on files; it is no part of Hash, because rules may
	// change before a call is issued again.
	Scope *Scope          `json:"scope,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Released is a finished call that boxd may forget, and the session that says so.
type Released struct {
	Call    holdfast.CallID    `json:"call"`
	Session holdfast.SessionID `json:"session,omitempty"`
}

// Scope is what a file operation may touch, by the places that paths really lead to in
// the box. They have to lie below a root of each list of Within, and below none of
// Denied. Roots are absolute. No path may match one of Patterns or lie below a match,
// neither as written nor where it leads. A pattern is an absolute path whose segments
// are matched as path.Match does; the segment ** stands for any number of directories.
type Scope struct {
	Denied   []string   `json:"denied,omitempty"`
	Within   [][]string `json:"within,omitempty"`
	Patterns []string   `json:"patterns,omitempty"`
}

// ArgumentHash is the hash that binds a call id to its arguments: hex SHA-256
// of the op, a NUL, and the request body followed by any data of a write.
func ArgumentHash(op Op, body []byte, data ...[]byte) string {
	h := sha256.New()
	h.Write([]byte(op))
	h.Write([]byte{0})
	h.Write(body)
	for _, d := range data {
		h.Write(d)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Empty is the answer of operations that return nothing.
type Empty struct{}

// ExecRequest starts a process, or attaches to the call of the same id. The
// attach fields (StdoutFrom, StderrFrom) are not part of the argument hash.
type ExecRequest struct {
	// Argv is run as it is; Argv[0] without a slash is looked up in PATH.
	// Exactly one of Argv and Shell is set; Shell is run by bash -c (sh without bash).
	Argv  []string `json:"argv,omitempty"`
	Shell string   `json:"shell,omitempty"`
	// Env adds to the environment of box and session, as NAME=value, and wins over both.
	Env []string `json:"env,omitempty"`
	// Cwd is the working directory; relative to the workspace; empty is the workspace.
	Cwd string `json:"cwd,omitempty"`
	// Stdin: FrameStdin follow until FrameEOF. Otherwise stdin is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// Merge sends stderr where stdout goes, in the order written.
	Merge bool `json:"merge,omitempty"`
	// Lines marks a line protocol: frames of stdout end at line ends, stdin is
	// handed on in whole lines, and no output is dropped that was not taken
	// (OpTake): a spool full of it stalls the process instead.
	Lines bool `json:"lines,omitempty"`
	// PTY runs the process on a terminal of this size; implies Merge and Stdin.
	PTY *Size `json:"pty,omitempty"`
	// TimeoutMS kills everything the call started after that time; 0 is none.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// KillOnDetach kills the call when its stream ends before its answer: for
	// interactive execs and terminals that nobody re-attaches.
	KillOnDetach bool `json:"kill_on_detach,omitempty"`
}

// Attach says from which offset on the output of an exec is wanted.
type Attach struct {
	StdoutFrom int64 `json:"stdout_from,omitempty"`
	StderrFrom int64 `json:"stderr_from,omitempty"`
}

// ExecBody is the body of an OpExec request: what is hashed and what is not.
type ExecBody struct {
	Exec   json.RawMessage `json:"exec"` // ExecRequest; hashed as sent
	Attach Attach          `json:"attach"`
	// Env is the session's environment at the start of the process, as NAME=value. It wins
	// over the box's own, and what Exec names wins over it. It may be another one when the
	// call is issued again.
	Env []string `json:"env,omitempty"`
	// Layers restrict the process; like Env they may differ when the call is issued again.
	Layers []Layer `json:"layers,omitempty"`
	// Watch asks which files of the workspace differ when the call has ended; an attaching
	// server gets what the one that started the call asked for.
	Watch bool `json:"watch,omitempty"`
	// Only attaches: an unknown call is not_found instead of started.
	AttachOnly bool `json:"attach_only,omitempty"`
}

// Size is a terminal's size.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Signal asks for a signal to the foreground of a call.
type Signal struct {
	Signal int `json:"signal"`
}

// Started says that the process of an exec exists.
type Started struct {
	PID int `json:"pid"`
	// Attached reports that the call was already known.
	Attached bool `json:"attached,omitempty"`
	// Lines reports a line protocol.
	Lines bool `json:"lines,omitempty"`
	// StdinTaken is how much stdin the call has taken, in bytes: of a line protocol
	// whole lines only. What a server sent beyond it is lost, and is sent again.
	StdinTaken int64 `json:"stdin_taken,omitempty"`
}

// ExecResult is how an exec ended. An exec ends with its leader's exit, not
// with the end of its pipes (HZ-15).
type ExecResult struct {
	Class holdfast.ExitClass `json:"class"`
	// Code is the exit code; -1 when a signal ended the leader.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// StdoutBytes and StderrBytes count all that was written, dropped output included.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutDropped and StderrDropped count what the spool no longer holds.
	StdoutDropped int64 `json:"stdout_dropped,omitempty"`
	StderrDropped int64 `json:"stderr_dropped,omitempty"`
	// Left names background processes the call left running, as "pid name".
	Left       []string `json:"left,omitempty"`
	DurationMS float64  `json:"duration_ms"`
	// Message explains classes error, oom and pids.
	Message string `json:"message,omitempty"`
	// Changes are the files that differ, of a call that was started with Watch.
	Changes *Changes `json:"changes,omitempty"`
}

// CallStatus is the state of a held call.
type CallStatus string

// The call states. A call that boxd does not hold is simply not listed.
const (
	CallRunning  CallStatus = "running"
	CallFinished CallStatus = "finished"
)

// CallState is one held call.
type CallState struct {
	Call holdfast.CallID `json:"call"`
	// Session is whose call it is; empty for a call of the server itself.
	Session holdfast.SessionID `json:"session,omitempty"`
	Op      Op                 `json:"op"`
	Hash    string             `json:"hash"`
	Status  CallStatus         `json:"status"`
}

// CallsAnswer lists the held calls of the session that asks.
type CallsAnswer struct {
	Boot  string      `json:"boot"`
	Calls []CallState `json:"calls"`
}

// KillRequest ends a running call and everything it started: SIGTERM, then
// SIGKILL after Grace.
type KillRequest struct {
	Call    holdfast.CallID `json:"call"`
	GraceMS int64           `json:"grace_ms"`
}

// TakeRequest says that a server is done with the output of a line protocol up
// to an offset: what it needs of it is durable. boxd may forget that much, and
// keeps the rest whoever has read it, because a server may die with what it read.
// Attaching from an offset says the same.
type TakeRequest struct {
	Call     holdfast.CallID `json:"call"`
	StdoutTo int64           `json:"stdout_to"`
}

// PathRequest names a path. Relative paths are relative to the workspace.
type PathRequest struct {
	Path string `json:"path"`
}

// ReadRequest reads bytes of a regular file.
type ReadRequest struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	// Limit is the most bytes sent; 0 is all.
	Limit int64 `json:"limit,omitempty"`
}

// ReadAnswer follows the data frames of a read.
type ReadAnswer struct {
	Size int64 `json:"size"`
	Sent int64 `json:"sent"`
}

// WriteRequest creates or replaces a file by temp name, fsync and rename.
type WriteRequest struct {
	Path string `json:"path"`
	// Mode is the permission bits of a new file; 0 is 0644. An existing file keeps its own.
	Mode uint32 `json:"mode,omitempty"`
	// Parents makes missing parent directories.
	Parents bool `json:"parents,omitempty"`
}

// WriteAnswer says what a write did.
type WriteAnswer struct {
	Created bool  `json:"created"`
	Size    int64 `json:"size"`
}

// EditRequest replaces text in a file. Old must occur exactly once unless All.
type EditRequest struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all,omitempty"`
}

// EditAnswer says what an edit did.
type EditAnswer struct {
	Replaced int `json:"replaced"`
	// Snippet is the first changed place with a few lines around it, numbered.
	Snippet string `json:"snippet,omitempty"`
}

// FileType is the type of a directory entry.
type FileType string

// The file types.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeOther   FileType = "other"
)

// FileInfo describes a file without following a final symlink.
type FileInfo struct {
	Path    string    `json:"path"`
	Type    FileType  `json:"type"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"`
}

// ListRequest lists a directory, sorted by name.
type ListRequest struct {
	Path string `json:"path"`
	// Limit is the most entries; 0 is 1000.
	Limit int `json:"limit,omitempty"`
}

// ListAnswer is a directory's entries; Path is relative to the directory.
type ListAnswer struct {
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated,omitempty"`
}

// GlobRequest finds files by a pattern with *, ?, [..], {a,b} and **.
type GlobRequest struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// GlobAnswer is the matching paths, newest first.
type GlobAnswer struct {
	Paths     []string `json:"paths"`
	Truncated bool     `json:"truncated,omitempty"`
}

// GrepRequest searches file contents with an RE2 expression.
type GrepRequest struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path,omitempty"`
	Glob       string `json:"glob,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Multiline  bool   `json:"multiline,omitempty"`
	// Mode is files (default), content or count.
	Mode   string `json:"mode,omitempty"`
	Before int    `json:"before,omitempty"`
	After  int    `json:"after,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// GrepMatch is a matching line (content), file (files) or file with its count.
type GrepMatch struct {
	Path  string `json:"path"`
	Line  int    `json:"line,omitempty"`
	Text  string `json:"text,omitempty"`
	Count int    `json:"count,omitempty"`
	// Context marks a line that only surrounds a match.
	Context bool `json:"context,omitempty"`
}

// GrepAnswer is what a search found, in path order.
type GrepAnswer struct {
	Matches   []GrepMatch `json:"matches"`
	Truncated bool        `json:"truncated,omitempty"`
}

// RemoveRequest removes a file, or with Recursive a tree.
type RemoveRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
}

// MkdirRequest makes a directory with its parents; an existing one is fine.
type MkdirRequest struct {
	Path string `json:"path"`
}

// RenameRequest renames within the box.
type RenameRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// PackRequest asks for a file, or a directory with all that is in it; links to it are
// followed.
type PackRequest struct {
	Path string `json:"path"`
}

// UnpackRequest puts an archive into the box. Unlike other operations that change files it
// has no call id: nobody asks for its outcome again, and an archive that was not received
// whole changes nothing.
type UnpackRequest struct {
	// Path is the directory that the archive becomes, or with File the file. If Path is a
	// directory and Name is not empty, it becomes the entry Name of it instead.
	Path string `json:"path"`
	Name string `json:"name,omitempty"`
	// Into: Path is a directory even if it does not exist yet.
	Into bool `json:"into,omitempty"`
	// File: the archive is one file or link.
	File bool `json:"file,omitempty"`
	// MaxBytes bounds the content; 0 is no bound.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// Stats is what the box uses now. A figure that cannot be read is -1.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryLimit int64 `json:"memory_limit"`
	Pids        int64 `json:"pids"`
	PidsLimit   int64 `json:"pids_limit"`
	CPUMicros   int64 `json:"cpu_micros"`
	OOMKills    int64 `json:"oom_kills"`
	// PidsRefused counts processes and threads that were not started, at the limit.
	PidsRefused int64 `json:"pids_refused"`
	Held        int   `json:"held_calls"`
	Running     int   `json:"running_calls"`
}

// Process is one process of the box, boxd excluded.
type Process struct {
	PID   int    `json:"pid"`
	PPID  int    `json:"ppid"`
	Name  string `json:"name"`
	State string `json:"state"`
	// Call is the call that started it, where known.
	Call holdfast.CallID `json:"call,omitempty"`
	// Leader: it is the process that its call started.
	Leader bool `json:"leader,omitempty"`
}

// PSAnswer is the box's processes.
type PSAnswer struct {
	Processes []Process `json:"processes"`
}

// GateRequest closes or opens the gate on forks. Closing answers only when no
// fork is under way and no boxd thread is inside the work leaf (HZ-10).
type GateRequest struct {
	Closed bool `json:"closed"`
}

// ListenRequest opens a proxy listener inside the box. Sessions have listeners of their
// own: one of the same address that another session opened is a conflict.
type ListenRequest struct {
	// Name is given back with each accepted connection.
	Name string `json:"name"`
	// Network is tcp (loopback) or unix; Address as for net.Listen.
	Network string `json:"network"`
	Address string `json:"address"`
}

// AcceptedRequest announces a connection that a listener accepted.
type AcceptedRequest struct {
	// Name is that of the listener, Session whose listener it is.
	Name    string             `json:"name"`
	Session holdfast.SessionID `json:"session,omitempty"`
}

// StopRequest ends the box: SIGTERM, SIGKILL after Grace, outcomes flushed to
// the state directory.
type StopRequest struct {
	GraceMS int64  `json:"grace_ms"`
	Reason  string `json:"reason,omitempty"`
}

// StopAnswer names the processes that ended with the box.
type StopAnswer struct {
	Processes []string `json:"processes"`
	// Unsaved says why the outcomes could not be flushed.
	Unsaved string `json:"unsaved,omitempty"`
}
