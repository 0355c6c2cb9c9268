package holdfast

import "time"

// CreateSession is the body of POST /v1/sessions. For an empty field the default of the workspace, the
// agent or the server applies, if there is one.
type CreateSession struct {
	ID         string            `json:"id,omitempty" doc:"The caller's own id, a UUID; absent: the server makes one."`
	Agent      string            `json:"agent,omitempty" doc:"The name of a deployed agent; absent: default."`
	Workspace  string            `json:"workspace_id,omitempty" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"The workspace whose files it works on; absent: files of its own."`
	Dir        string            `json:"dir,omitempty" doc:"The absolute path of a directory on the server's machine to work in, instead of workspace_id: the workspace of that directory is used, or made. Needs an admin key."`
	Umask      string            `json:"umask,omitempty" pattern:"^0?[0-7]{1,3}$" doc:"With dir: the octal umask of its user, for a workspace that is made; absent: 022." example:"027"`
	Trust      string            `json:"trust,omitempty" doc:"Where tools run: in a sandbox, or as the server's user; absent: that of the workspace, else default_trust of the server."`
	Runtime    string            `json:"runtime,omitempty" doc:"What runs the agent: native, claude or acp:NAME; absent: the agent's, else native."`
	Model      string            `json:"model,omitempty" doc:"PROVIDER/MODEL; absent: the agent's, else the server's."`
	Mode       string            `json:"mode,omitempty" doc:"What happens to a tool call that no rule decided; absent: bypassPermissions if untrusted, else default."`
	Title      string            `json:"title,omitempty" doc:"For people and for search."`
	Tags       []string          `json:"tags,omitempty" doc:"Words to find it by."`
	Env        map[string]string `json:"env,omitempty" doc:"Variables of its tools. Values are stored encrypted and shown as ***."`
	Budget     *Budget           `json:"budget,omitempty" doc:"Bounds the whole session; absent: the server's default."`
	TurnBudget *Budget           `json:"turn_budget,omitempty" doc:"Bounds each turn; absent: the server's default."`
	Network    []string          `json:"network,omitzero" doc:"What its box may connect to, as domains with an optional port; [] is nothing; absent: what the agent or the server names."`
	Mount      string            `json:"mount,omitempty" doc:"What its box has of the server's files, within what its workspace has: workspace, or tree-ro, which adds the server's tree_root at /tree, read-only; absent: what its workspace has."`
	Source     string            `json:"source,omitempty" doc:"Says where its first files will be imported from, in any words. The session takes no message until that import is complete."`
	// MaxTrust is the caller's maximum trust; empty for the owner, who has no limit. A higher requested
	// trust is denied; a higher default of the workspace or the server is lowered to it.
	MaxTrust Trust `json:"-"`
}

// UpdateSession is the body of PATCH /v1/sessions/{id}; absent fields change nothing.
type UpdateSession struct {
	Title      *string   `json:"title,omitempty" doc:"The new title."`
	Tags       *[]string `json:"tags,omitempty" doc:"All tags from now on."`
	AddTags    []string  `json:"add_tags,omitempty" doc:"Tags to add to those that are there."`
	RemoveTags []string  `json:"remove_tags,omitempty" doc:"Tags to take away."`
	Mode       *string   `json:"mode,omitempty" doc:"The new permission mode."`
	Model      *string   `json:"model,omitempty" doc:"The new model, PROVIDER/MODEL."`
	Runtime    *string   `json:"runtime,omitempty" doc:"The new runtime: native, claude or acp:NAME."`
	Trust      *string   `json:"trust,omitempty" doc:"Where its tools run from now on."`
	Budget     *Budget   `json:"budget,omitempty" doc:"Replaces the session's whole budget."`
	TurnBudget *Budget   `json:"turn_budget,omitempty" doc:"Replaces the whole budget of each turn."`
	Network    *[]string `json:"network,omitempty" doc:"All that its box may connect to from now on. What is open and not granted any more is cut."`
	AllowNet   []string  `json:"allow_net,omitempty" doc:"Destinations to add."`
	DenyNet    []string  `json:"deny_net,omitempty" doc:"Destinations to take away."`
	Revision   int64     `json:"revision,omitempty" doc:"The session's revision that the change is for: another one is a conflict. 0: any."`
	Interrupt  bool      `json:"interrupt,omitempty" doc:"End a running turn first where the change needs that; false: that is a conflict."`
	// MaxTrust is the caller's maximum trust; empty for the owner, who has no limit.
	MaxTrust Trust `json:"-"`
}

// SessionFilter selects sessions of GET /v1/sessions.
type SessionFilter struct {
	Status, Agent, Tag, Text, Cursor string
	// Workspace selects the sessions of a workspace.
	Workspace Slug
	// Name selects sessions as people name them, ignoring case: by the beginning or ending
	// of an id, by the title, or by the beginning of the title. The first of these three
	// that matches exactly one session is used; if none does, the first that matches any.
	// Name cannot be combined with Cursor.
	Name string
	// Query holds words that must occur in the title or the conversation, in the syntax of
	// SearchRequest.Query.
	Query string
	// Trash selects the sessions in the trash; if it is false, only sessions that are not in the trash are listed.
	Trash bool
	// Limit is the page size, 1-500; 0 is 50.
	Limit int
}

// SessionPage is one page of sessions, newest first. Next is the cursor of the
// following page, empty on the last page.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty"`
}

// EndSession is the body of the requests that pause, end or delete a session.
type EndSession struct {
	Interrupt bool   `json:"interrupt,omitempty" doc:"End a running turn first; false: a running turn is a conflict."`
	Reason    string `json:"reason,omitempty" doc:"Kept in the log."`
	Purge     bool   `json:"purge,omitempty" doc:"For a delete: skip the trash; log and files are gone for good."`
}

// ResumeSession is the body of POST /v1/sessions/{id}/resume.
type ResumeSession struct {
	Fresh  bool `json:"fresh,omitempty" doc:"Where the files cannot be recovered, go on with the agent's own files; false: that is a conflict."`
	DryRun bool `json:"dry_run,omitempty" doc:"Answer with the plan's receipt and change nothing."`
}

// Resumed is the answer of a resume. Receipt is nil if the session was active already.
type Resumed struct {
	Session Session  `json:"session"`
	Receipt *Receipt `json:"receipt,omitempty"`
}

// SendMessage is the body of POST /v1/sessions/{id}/turns.
type SendMessage struct {
	Text   string `json:"text,omitempty" doc:"The message, at most 10 MiB; instead of parts."`
	Parts  []Part `json:"parts,omitempty" doc:"The message as a list of parts, together at most 10 MiB; instead of text. Their type is text."`
	Mode   string `json:"mode,omitempty" doc:"What it does while a turn runs: wait for its own turn, join the running one, or end that first; absent: queue."`
	Resume *bool  `json:"resume,omitempty" doc:"false: refuse a paused or failed session instead of resuming it; absent: true."`
	Trust  string `json:"trust,omitempty" doc:"What the turn must run with; another than the session's is a conflict; absent: that."`
	// Key is the Idempotency-Key header.
	Key string `json:"-"`
	// MaxTrust is the caller's maximum trust; empty for the owner, who has no limit.
	MaxTrust Trust `json:"-"`
}

// MaxText is the largest text of a message, in bytes.
const MaxText = 10 << 20

// Sent is the answer to a SendMessage. Duplicate is true if a message with the same
// idempotency key had been sent before; Turn is then that message's turn.
type Sent struct {
	Turn Turn `json:"turn"`
	// Seq is the number of the last event before the turn's events: read events after it.
	Seq       int64 `json:"seq"`
	Duplicate bool  `json:"duplicate,omitempty"`
}

// EventFilter selects events of GET /v1/sessions/{id}/events.
type EventFilter struct {
	After int64
	// Limit is the page size, 1-1000; 0 means 100.
	Limit int
	Types []EventType
}

// ExecRequest is the body of POST /v1/sessions/{id}/exec. Exactly one of Argv
// and Command is set.
type ExecRequest struct {
	Argv      []string          `json:"argv,omitempty" doc:"The program and its arguments; instead of command."`
	Command   string            `json:"command,omitempty" doc:"A line for the shell; instead of argv."`
	Cwd       string            `json:"cwd,omitempty" doc:"The directory, relative to the workspace; absent: the workspace."`
	Env       map[string]string `json:"env,omitempty" doc:"Variables beside the session's."`
	Stdin     []byte            `json:"stdin,omitempty" doc:"What the command reads, base64."`
	TimeoutMS int64             `json:"timeout_ms,omitempty" doc:"Kills the command after so many milliseconds, at most 3600000; 0: 120000."`
}

// ExecResult is the answer of an exec. A command that fails or times out is reported
// here, not as an error of the request.
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

// FileList lists a directory's entries. Truncated is true if there are more.
type FileList struct {
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated,omitempty"`
}

// Health is the answer of /healthz and /readyz. Without a valid key it holds only the
// status.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
	// ReadOnly says why the server's database cannot be written; empty if it can.
	ReadOnly string `json:"read_only,omitempty"`
	// Damaged lists the damage found in the data directory since the server started.
	Damaged []string `json:"damaged,omitempty"`
	Driver  string   `json:"driver,omitempty"`
	PID     int      `json:"pid,omitempty"`
	// RunningTurns is how many turns are running now.
	RunningTurns int `json:"running_turns,omitempty"`
}

// Problem is the error document of the API (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   Kind   `json:"kind"`
	Hint   string `json:"hint,omitempty"`
	// RequestID is the X-Request-Id of the answer, by which to find the request in the
	// server's log.
	RequestID string `json:"request_id,omitempty"`
}

// TermSize is a terminal's size in characters.
type TermSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// TerminalRequest is the request to start a command on a terminal in a session's box.
type TerminalRequest struct {
	// Size is the terminal's size; the zero value means 24 rows of 80 characters.
	Size TermSize
	// Exec is the command to run on the terminal; nil means a login shell. Without a timeout
	// it may run for as long as the terminal exists. Its Stdin must be empty: the command
	// reads the keys that are typed.
	Exec *ExecRequest
}

// StopContainers is the body of POST /v1/containers/stop.
type StopContainers struct {
	IDs []string `json:"ids,omitempty" doc:"Ids of boxes, as in the list; instead of all."`
	All bool     `json:"all,omitempty" doc:"Stop every box."`
}
