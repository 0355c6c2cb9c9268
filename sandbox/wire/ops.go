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

// The operations, with their requests and answers. boxd stores the outcome of an operation that
// is marked "mutates" under its call id until the server releases the call.
const (
	OpExec    Op = "exec"    // mutates; request ExecBody, then frames of Started and output, answer ExecResult
	OpCalls   Op = "calls"   // no request body, answer CallsAnswer
	OpRelease Op = "release" // no request body, answer Empty; boxd only forgets the calls in Request.Release
	OpKill    Op = "kill"    // request KillRequest, answer Empty
	OpTake    Op = "take"    // request TakeRequest, answer Empty
	OpRead    Op = "read"    // request ReadRequest, then data frames of the file, answer ReadAnswer
	OpWrite   Op = "write"   // mutates; request WriteRequest, data frames and an EOF frame, answer WriteAnswer
	OpEdit    Op = "edit"    // mutates; request EditRequest, answer EditAnswer
	OpStat    Op = "stat"    // request PathRequest, answer FileInfo
	OpList    Op = "list"    // request ListRequest, answer ListAnswer
	OpGlob    Op = "glob"    // request GlobRequest, answer GlobAnswer
	OpGrep    Op = "grep"    // request GrepRequest, answer GrepAnswer
	OpRemove  Op = "remove"  // mutates; request RemoveRequest, answer Empty
	OpMkdir   Op = "mkdir"   // mutates; request MkdirRequest, answer Empty
	OpRename  Op = "rename"  // mutates; request RenameRequest, answer Empty
	OpPack    Op = "pack"    // request PackRequest, then data frames of a tar archive, answer Copied
	OpUnpack  Op = "unpack"  // request UnpackRequest, data frames of a tar archive and an EOF frame, answer Copied
	OpStats   Op = "stats"   // no request body, answer Stats
	OpPS      Op = "ps"      // no request body, answer PSAnswer
	OpGate    Op = "gate"    // request GateRequest, answer Empty: block or allow forks around a freeze
	OpListen  Op = "listen"  // request ListenRequest, answer ListenAnswer; accepted connections come as OpAccepted streams
	OpWatch   Op = "watch"   // request WatchRequest, answer Changes
	OpLeave   Op = "leave"   // request LeaveRequest, answer Empty: end a session's processes and its place in the box
	OpStop    Op = "stop"    // request StopRequest, answer StopAnswer: end everything, flush outcomes, exit

	// OpAccepted is the operation of a stream that boxd opens. The request is AcceptedRequest;
	// after it the stream carries the bytes of the accepted connection in both directions,
	// without frames.
	OpAccepted Op = "accepted"
)

// Request is the first frame of a stream. Body is the JSON of the operation's
// request type.
type Request struct {
	Op Op `json:"op"`
	// Call identifies an operation that changes something. boxd carries out each Call once: the
	// same Call again attaches to the running operation or returns the stored outcome.
	Call holdfast.CallID `json:"call,omitempty"`
	// Session is the session that the operation belongs to: a session has access only to its own calls and
	// listeners. Empty means the server itself, which has access to the calls and listeners of all sessions.
	Session holdfast.SessionID `json:"session,omitempty"`
	// Hash is the ArgumentHash of the operation. boxd refuses the same Call with another Hash
	// with conflict.
	Hash string `json:"hash,omitempty"`
	// Release are finished calls whose outcome the server has committed: boxd forgets them
	// before it serves the operation. It ignores unknown ids and ids of other sessions.
	Release []Released `json:"release,omitempty"`
	// Scope limits which paths a file operation may access; nil allows all. It is not part of
	// Hash, because rules may change before a call is issued again.
	Scope *Scope          `json:"scope,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Released names a finished call that boxd may forget, and the session that releases it.
type Released struct {
	Call    holdfast.CallID    `json:"call"`
	Session holdfast.SessionID `json:"session,omitempty"`
}

// Scope limits which paths a file operation may access, after links in them are resolved. A
// path must lie below a root of each list in Within, and below no root in Denied. Roots are
// absolute. Neither the path as written nor the resolved path may match one of Patterns or lie
// below a match. A pattern is an absolute path whose segments match as in path.Match; the
// segment ** stands for any number of directories.
type Scope struct {
	Denied   []string   `json:"denied,omitempty"`
	Within   [][]string `json:"within,omitempty"`
	Patterns []string   `json:"patterns,omitempty"`
	// Agents are directories below the home: neither the path as written nor the resolved path may lie in one.
	Agents []string `json:"agents,omitempty"`
}

// ArgumentHash returns the hash that binds a call id to its arguments: the SHA-256 of the op, a
// NUL byte, the request body and the data of a write, in hexadecimal.
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

// ExecRequest asks to start a process, or to attach to the call with the same id. It is hashed
// into the call's argument hash; the offsets in Attach are not.
type ExecRequest struct {
	// Argv is the program and its arguments; a program name without a slash is looked up in
	// PATH. Shell is a command line for bash -c, or sh -c if the box has no bash. Exactly one
	// of Argv and Shell is set.
	Argv  []string `json:"argv,omitempty"`
	Shell string   `json:"shell,omitempty"`
	// Env adds variables, as NAME=value, that override those of box and session.
	Env []string `json:"env,omitempty"`
	// Cwd is the working directory. A relative path is relative to the workspace; empty means the workspace.
	Cwd string `json:"cwd,omitempty"`
	// Stdin is true if the server sends stdin in FrameStdin frames, ended by FrameEOF. If it is
	// false, stdin is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// Merge makes stderr go into stdout, in the order in which the process writes.
	Merge bool `json:"merge,omitempty"`
	// Lines is true for a line protocol. Then a stdout frame ends at a line end, unless a line is longer
	// than a frame; stdin is passed on in complete lines; and boxd drops output only after the server
	// has taken it (OpTake). If the spool is full of output that was not taken, the process blocks.
	Lines bool `json:"lines,omitempty"`
	// PTY, if not nil, is the size of a terminal on which the process runs; it implies Merge and Stdin.
	PTY *Size `json:"pty,omitempty"`
	// TimeoutMS is the time in milliseconds after which everything that the call started is
	// killed; 0 means no timeout.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// KillOnDetach kills the call if its stream ends before its answer. It is for interactive
	// execs and terminals, to which no caller attaches again.
	KillOnDetach bool `json:"kill_on_detach,omitempty"`
}

// Attach says from which offsets on boxd sends the output of an exec.
type Attach struct {
	StdoutFrom int64 `json:"stdout_from,omitempty"`
	StderrFrom int64 `json:"stderr_from,omitempty"`
}

// ExecBody is the body of an OpExec request. Only Exec is part of the argument hash.
type ExecBody struct {
	Exec   json.RawMessage `json:"exec"` // an ExecRequest; the argument hash covers these bytes as they were sent
	Attach Attach          `json:"attach"`
	// Env is the session's environment, as NAME=value, when the process starts. It overrides
	// the box's environment; the variables in Exec override it. It may have changed when the
	// call is issued again.
	Env []string `json:"env,omitempty"`
	// Layers restrict the process; like Env they may have changed when the call is issued again.
	Layers []Layer `json:"layers,omitempty"`
	// Watch asks for the list of files in the workspace that the call changed. For a call that
	// was started before, the Watch of its first request counts.
	Watch bool `json:"watch,omitempty"`
	// AttachOnly attaches to a known call and starts nothing: an unknown call is not_found.
	AttachOnly bool `json:"attach_only,omitempty"`
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Signal asks boxd to send a signal to the foreground processes of a call.
type Signal struct {
	Signal int `json:"signal"`
}

// Started is boxd's message that the process of an exec exists.
type Started struct {
	PID int `json:"pid"`
	// Attached is true if boxd knew the call already, so that no process was started.
	Attached bool `json:"attached,omitempty"`
	// Lines is true if the call uses a line protocol.
	Lines bool `json:"lines,omitempty"`
	// StdinTaken is how many bytes of stdin the call has received, for a line protocol only
	// complete lines. Bytes that an earlier server sent beyond this are lost and have to be
	// sent again.
	StdinTaken int64 `json:"stdin_taken,omitempty"`
}

// ExecResult says how an exec ended. An exec ends when its first process (the leader) exits,
// even if other processes still have its pipes open (HZ-15).
type ExecResult struct {
	Class holdfast.ExitClass `json:"class"`
	// Code is the exit code; -1 after a signal. If no process started: 127 (not found), 126 (not allowed) or -1.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// StdoutBytes and StderrBytes count all output bytes, including dropped ones.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutDropped and StderrDropped count the output bytes that the spool has dropped.
	StdoutDropped int64 `json:"stdout_dropped,omitempty"`
	StderrDropped int64 `json:"stderr_dropped,omitempty"`
	// Left lists the background processes that the call left running, as "pid name". If boxd cannot
	// list them, it has one entry that says so.
	Left       []string `json:"left,omitempty"`
	DurationMS float64  `json:"duration_ms"`
	// Message explains the class; it is empty for the classes ok, exit and signal.
	Message string `json:"message,omitempty"`
	// Changes lists the files that changed, if the call was started with Watch.
	Changes *Changes `json:"changes,omitempty"`
}

// CallStatus is the state of a call that boxd holds.
type CallStatus string

// The call states. boxd lists only the calls that it holds: running ones, and finished ones
// that were not released.
const (
	CallRunning  CallStatus = "running"
	CallFinished CallStatus = "finished"
)

// CallState describes one call that boxd holds.
type CallState struct {
	Call holdfast.CallID `json:"call"`
	// Session is the session that made the call; empty for a call of the server itself.
	Session holdfast.SessionID `json:"session,omitempty"`
	Op      Op                 `json:"op"`
	Hash    string             `json:"hash"`
	Status  CallStatus         `json:"status"`
}

// CallsAnswer lists the calls that boxd holds for the asking session.
type CallsAnswer struct {
	Boot  string      `json:"boot"`
	Calls []CallState `json:"calls"`
}

// KillRequest ends a call and all processes that it started, also those that a finished call has left:
// with SIGTERM and, after GraceMS milliseconds, SIGKILL. If GraceMS is 0, boxd sends only SIGKILL.
type KillRequest struct {
	Call    holdfast.CallID `json:"call"`
	GraceMS int64           `json:"grace_ms"`
}

// TakeRequest says that the server no longer needs the output of a line protocol up to an
// offset, because it has recorded what it needs. boxd may delete the output up to there. It
// stores the rest even if a server has read it, since the server may die before recording it.
// Attaching at an offset also takes the output before it.
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
	// Limit is the greatest number of bytes to send; 0 means all.
	Limit int64 `json:"limit,omitempty"`
	// Where is true if the answer is to contain ReadAnswer.Below.
	Where bool `json:"where,omitempty"`
}

// ReadAnswer is the answer of a read, after its data frames.
type ReadAnswer struct {
	Size int64 `json:"size"`
	Sent int64 `json:"sent"`
	// Below is where the file that was opened lies in the workspace: a path relative to it, without symlinks. It is empty
	// for a file elsewhere, and for one whose path is not valid text.
	Below string `json:"below,omitempty"`
}

// WriteRequest creates or replaces a file atomically: boxd writes a temporary file, syncs it and
// renames it.
type WriteRequest struct {
	Path string `json:"path"`
	// Mode holds the permission bits of a new file; 0 means 0666 minus the bits of the box's umask. An existing
	// file keeps its permission bits.
	Mode uint32 `json:"mode,omitempty"`
	// Parents is true if missing parent directories are to be created.
	Parents bool `json:"parents,omitempty"`
}

// WriteAnswer says what a write did.
type WriteAnswer struct {
	Created bool  `json:"created"`
	Size    int64 `json:"size"`
}

// EditRequest replaces the text Old in a file by New: all occurrences if All is set, otherwise
// Old must occur exactly once.
type EditRequest struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all,omitempty"`
}

// EditAnswer says what an edit did.
type EditAnswer struct {
	Replaced int `json:"replaced"`
	// Snippet shows the first changed place with a few lines around it, with line numbers.
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
	// Limit is the greatest number of entries to return; 0 means 1000, more than 10,000 means 10,000.
	Limit int `json:"limit,omitempty"`
}

// ListAnswer lists a directory's entries; their Path is relative to the directory.
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

// GlobAnswer lists the matching paths, the most recently changed first.
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
	// Mode says what to return: files (the names of matching files, the default), content
	// (matching lines) or count (the number of matching lines, with Multiline of matches, in each file).
	Mode   string `json:"mode,omitempty"`
	Before int    `json:"before,omitempty"`
	After  int    `json:"after,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// GrepMatch is one result of a search: a matching line or a line near it (mode content), a file name (mode
// files), or a file name with a count (mode count).
type GrepMatch struct {
	Path  string `json:"path"`
	Line  int    `json:"line,omitempty"`
	Text  string `json:"text,omitempty"`
	Count int    `json:"count,omitempty"`
	// Context is true for a line that does not match but surrounds a match.
	Context bool `json:"context,omitempty"`
}

// GrepAnswer lists the results of a search, sorted by path.
type GrepAnswer struct {
	Matches   []GrepMatch `json:"matches"`
	Truncated bool        `json:"truncated,omitempty"`
}

// RemoveRequest removes a file or an empty directory, or with Recursive a directory with everything in it.
type RemoveRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
}

// MkdirRequest creates a directory with its parents. If the directory exists, boxd returns no error.
type MkdirRequest struct {
	Path string `json:"path"`
}

// RenameRequest renames a file, symlink or directory of the box.
type RenameRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// PackRequest asks for a tar archive of a file, or of a directory with everything in it. If
// Path is a symbolic link, boxd follows it.
type PackRequest struct {
	Path string `json:"path"`
}

// UnpackRequest extracts a tar archive in the box. Unlike other operations that change files it
// needs no call id: its outcome is never asked for later, and an archive that was not received
// completely changes nothing.
type UnpackRequest struct {
	// Path is the directory that the archive's content goes to, or with File the file that it
	// becomes. If Path is an existing directory and Name is not empty, the content becomes
	// Path/Name instead.
	Path string `json:"path"`
	Name string `json:"name,omitempty"`
	// Into is true if Path names a directory even if it does not exist yet: the content is then put into it.
	Into bool `json:"into,omitempty"`
	// File is true if the archive holds a single file or symbolic link.
	File bool `json:"file,omitempty"`
	// MaxBytes limits the size of the content; 0 means no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// Stats says what resources the box uses now. A number that cannot be read, or a limit that is not set, is -1.
type Stats struct {
	MemoryBytes int64 `json:"memory_bytes"`
	MemoryLimit int64 `json:"memory_limit"`
	Pids        int64 `json:"pids"`
	PidsLimit   int64 `json:"pids_limit"`
	CPUMicros   int64 `json:"cpu_micros"`
	OOMKills    int64 `json:"oom_kills"`
	// PidsRefused counts the starts of processes and threads that failed at the limit.
	PidsRefused int64 `json:"pids_refused"`
	Held        int   `json:"held_calls"`
	Running     int   `json:"running_calls"`
	Alive       Alive `json:"alive"`
}

// Process is one process of the box, boxd excluded.
type Process struct {
	PID   int    `json:"pid"`
	PPID  int    `json:"ppid"`
	Name  string `json:"name"`
	State string `json:"state"`
	// Call is the call that started the process; empty if not known.
	Call holdfast.CallID `json:"call,omitempty"`
	// Leader is true for the first process of its call.
	Leader bool `json:"leader,omitempty"`
}

// PSAnswer lists the box's processes.
type PSAnswer struct {
	Processes []Process `json:"processes"`
}

// GateRequest closes or opens boxd's gate. While the gate is closed, boxd starts no process. boxd
// answers a request to close it only when no fork is in progress and no thread of boxd would be frozen
// together with the tools, so that their cgroup can be frozen (HZ-10).
type GateRequest struct {
	Closed bool `json:"closed"`
}

// StopRequest ends the box: boxd sends all processes SIGTERM and, after GraceMS milliseconds,
// SIGKILL (if GraceMS is 0, only SIGKILL), writes the outcomes of calls to the state directory, and exits.
type StopRequest struct {
	GraceMS int64  `json:"grace_ms"`
	Reason  string `json:"reason,omitempty"`
}

// LeaveRequest ends a session's part of a shared box: its calls and all processes that it started
// get SIGTERM and, after GraceMS milliseconds, SIGKILL. Then its listeners close and its place is
// gone. Outcomes that were not released stay. Processes of a frozen box end once it is thawed.
type LeaveRequest struct {
	GraceMS int64  `json:"grace_ms"`
	Reason  string `json:"reason,omitempty"`
}

// StopAnswer names the processes that ended with the box, as "pid name", except agents with a line protocol.
type StopAnswer struct {
	Processes []string `json:"processes"`
	// Unsaved says why the outcomes of calls could not be written to disk; empty if they were.
	Unsaved string `json:"unsaved,omitempty"`
}
