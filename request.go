package holdfast

import "time"

// CreateSession is the body of POST /v1/sessions. Empty fields take the
// server's defaults.
type CreateSession struct {
	// ID is the caller's own session id, a UUID.
	ID      string            `json:"id,omitempty"`
	Agent   string            `json:"agent,omitempty"`
	Trust   string            `json:"trust,omitempty"`
	Runtime string            `json:"runtime,omitempty"`
	Model   string            `json:"model,omitempty"`
	Mode    string            `json:"mode,omitempty"`
	Title   string            `json:"title,omitempty"`
	Tags    []string          `json:"tags,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Budget bounds the whole session, TurnBudget each turn; absent takes the
	// server's defaults.
	Budget     *Budget `json:"budget,omitempty"`
	TurnBudget *Budget `json:"turn_budget,omitempty"`
	// Network is what its box may connect to; see Session.
	Network []string `json:"network,omitzero"`
	// MaxTrust is the highest trust of who asks; empty for the owner. More is
	// denied where it is asked for and lowered where it is the server's default.
	MaxTrust Trust `json:"-"`
}

// UpdateSession is the body of PATCH /v1/sessions/{id}; absent fields stay.
type UpdateSession struct {
	Title *string `json:"title,omitempty"`
	// Tags are all tags from now on; AddTags and RemoveTags change those that
	// are there.
	Tags       *[]string `json:"tags,omitempty"`
	AddTags    []string  `json:"add_tags,omitempty"`
	RemoveTags []string  `json:"remove_tags,omitempty"`
	Mode       *string   `json:"mode,omitempty"`
	Model      *string   `json:"model,omitempty"`
	Runtime    *string   `json:"runtime,omitempty"`
	Trust      *string   `json:"trust,omitempty"`
	// Budget and TurnBudget replace the whole budget.
	Budget     *Budget `json:"budget,omitempty"`
	TurnBudget *Budget `json:"turn_budget,omitempty"`
	// Network is all that its box may connect to from now on; AllowNet and DenyNet
	// change what is there. What is open and not granted any more is cut.
	Network  *[]string `json:"network,omitempty"`
	AllowNet []string  `json:"allow_net,omitempty"`
	DenyNet  []string  `json:"deny_net,omitempty"`
	// Revision, when not 0, must be the session's; otherwise it is conflict.
	Revision int64 `json:"revision,omitempty"`
	// Interrupt ends a running turn first where the change needs that.
	Interrupt bool `json:"interrupt,omitempty"`
	// MaxTrust is the highest trust of who asks; empty for the owner.
	MaxTrust Trust `json:"-"`
}

// SessionFilter selects sessions of GET /v1/sessions.
type SessionFilter struct {
	Status, Agent, Tag, Text, IDPrefix, Cursor string
	// Query are words that occur in the title or the conversation, as in
	// SearchRequest.
	Query string
	// Limit is the page size, 1-500; 0 is 50.
	Limit int
}

// SessionPage is one page of sessions, newest first. Next is the cursor of the
// page after it, empty on the last.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty"`
}

// EndSession is the body of pause, end and of a delete.
type EndSession struct {
	// Interrupt ends a running turn first; without it a running turn is conflict.
	Interrupt bool   `json:"interrupt,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Purge, for a delete, accepts that log and files are gone for good.
	Purge bool `json:"purge,omitempty"`
}

// ResumeSession is the body of POST /v1/sessions/{id}/resume.
type ResumeSession struct {
	// Fresh accepts an empty workspace when the files cannot be recovered.
	Fresh bool `json:"fresh,omitempty"`
	// DryRun answers with the plan's receipt and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Resumed is the answer of a resume. Receipt is nil when the session was active.
type Resumed struct {
	Session Session  `json:"session"`
	Receipt *Receipt `json:"receipt,omitempty"`
}

// SendMessage is the body of POST /v1/sessions/{id}/turns.
type SendMessage struct {
	Text string `json:"text"`
	// Mode is queue (default), steer or interrupt.
	Mode string `json:"mode,omitempty"`
	// Resume false refuses a paused or errored session instead of resuming it.
	Resume *bool `json:"resume,omitempty"`
	// Trust is what the turn must run with; empty is the session's. In this release
	// another than the session's is conflict.
	Trust string `json:"trust,omitempty"`
	// Key is the Idempotency-Key header.
	Key string `json:"-"`
	// MaxTrust is the highest trust of who asks; empty for the owner.
	MaxTrust Trust `json:"-"`
}

// MaxText is the largest message, in bytes.
const MaxText = 10 << 20

// Sent is the answer of a send: the turn, and whether the key had been used.
type Sent struct {
	Turn Turn `json:"turn"`
	// Seq is the log position before the turn: follow events from here.
	Seq       int64 `json:"seq"`
	Duplicate bool  `json:"duplicate,omitempty"`
}

// EventFilter selects events of GET /v1/sessions/{id}/events.
type EventFilter struct {
	After int64
	// Limit is the page size, 1-1000; 0 is 100.
	Limit int
	Types []EventType
}

// ExecRequest is the body of POST /v1/sessions/{id}/exec. Exactly one of Argv
// and Command is set.
type ExecRequest struct {
	Argv    []string          `json:"argv,omitempty"`
	Command string            `json:"command,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Stdin is sent to the process; base64 in JSON.
	Stdin []byte `json:"stdin,omitempty"`
	// TimeoutMS kills the command after that time; 0 is 120000, at most 3600000.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ExecResult is the answer of an exec. A command that fails or times out is a
// result, not an error.
type ExecResult struct {
	Class    ExitClass `json:"class"`
	ExitCode int       `json:"exit_code"`
	Signal   string    `json:"signal,omitempty"`
	// Stdout and Stderr are base64 in JSON, each cut at 10 MiB.
	Stdout     []byte  `json:"stdout"`
	Stderr     []byte  `json:"stderr"`
	Truncated  bool    `json:"truncated,omitempty"`
	Message    string  `json:"message,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// FileInfo describes a file of a session.
type FileInfo struct {
	Path    string    `json:"path"`
	Type    string    `json:"type"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"`
}

// FileList is a directory's entries.
type FileList struct {
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated,omitempty"`
}

// Health is the answer of /healthz and /readyz.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
	// ReadOnly is why the store takes no writes; empty when it does.
	ReadOnly string `json:"read_only,omitempty"`
	Driver   string `json:"driver"`
	PID      int    `json:"pid"`
	// Sessions running a turn now.
	RunningTurns int `json:"running_turns"`
}

// Problem is the error document of the API (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   Kind   `json:"kind"`
	Hint   string `json:"hint,omitempty"`
	// RequestID is the X-Request-Id of the answer: the server's log has it too.
	RequestID string `json:"request_id,omitempty"`
}

// TermSize is a terminal's size in characters.
type TermSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// StopContainers is the body of POST /v1/containers/stop.
type StopContainers struct {
	// IDs are box ids; All stops every one.
	IDs []string `json:"ids,omitempty"`
	All bool     `json:"all,omitempty"`
}
