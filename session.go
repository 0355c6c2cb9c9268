// budget: struct Session 27: one field for each value that the API shows of a session

package holdfast

import "time"

// Status is the state of a session. The zero value is illegal.
type Status string

// The session states. A session is starting only while a resume is being executed.
const (
	StatusStarting Status = "starting"
	StatusActive   Status = "active"
	StatusPaused   Status = "paused"
	StatusError    Status = "error"
	StatusEnded    Status = "ended"
)

// transitions is the state machine of sessions: the states that may follow each state.
// The store refuses any other step (I-6).
var transitions = map[Status][]Status{
	StatusActive:   {StatusPaused, StatusError, StatusEnded},
	StatusPaused:   {StatusStarting, StatusEnded},
	StatusError:    {StatusStarting, StatusEnded},
	StatusStarting: {StatusActive, StatusError, StatusEnded},
	StatusEnded:    {},
}

func (Status) parse(s string) (string, error) {
	return parseWord[Status]("status", "a session status", s)
}

// CanBecome reports whether a session in state s may change to state next.
func (s Status) CanBecome(next Status) bool {
	for _, t := range transitions[s] {
		if t == next {
			return true
		}
	}
	return false
}

// Session is a durable conversation with an agent. It is the wire type of
// /v1/sessions; times are UTC with millisecond precision.
type Session struct {
	ID           SessionID `json:"id"`
	Status       Status    `json:"status"`
	Agent        AgentName `json:"agent"`
	AgentVersion VersionID `json:"agent_version"`
	// Workspace is the workspace whose files the session works on; empty for files of its own.
	Workspace Slug `json:"workspace_id,omitempty"`
	// Mount is MountTree if the session's box also has the server's tree_root, read-only; empty means MountWorkspace.
	Mount   string   `json:"mount,omitempty"`
	Trust   Trust    `json:"trust"`
	Runtime string   `json:"runtime"`
	Model   string   `json:"model"`
	Mode    Mode     `json:"mode"`
	Title   string   `json:"title"`
	Tags    []string `json:"tags"`
	// Env has the names of the environment variables set at creation, each with the value
	// "***" in place of its own.
	Env map[string]string `json:"env,omitempty"`
	// Error says why the status is error; empty for any other status.
	Error string `json:"error,omitempty"`
	// Revision increases by one with each change of this record, except if only LastSeq changes.
	Revision int64 `json:"revision"`
	// LastSeq is the sequence number of the newest event.
	LastSeq int64 `json:"last_seq"`
	// CompletedTurns counts the completed turns of the conversation, without turns that a rewind took back.
	CompletedTurns int64 `json:"completed_turns"`
	// Budget limits the whole session, TurnBudget each of its turns; nil means no limit.
	Budget     *Budget `json:"budget,omitempty"`
	TurnBudget *Budget `json:"turn_budget,omitempty"`
	// Network lists the destinations that the session's box may connect to, within what
	// the server grants. Nil means the defaults of the agent or server; an empty list
	// allows no destination.
	Network []string `json:"network,omitzero"`
	// Spent is what the ended turns used up.
	Spent Spent `json:"spent"`
	// Source is where the session's first files are imported from; nil if they come only
	// from the agent's version.
	Source *Source `json:"source,omitempty"`
	// ParkedUntil is when the running turn calls its model again; nil unless the turn waits
	// for a rate limit of the provider to pass.
	ParkedUntil *time.Time `json:"parked_until,omitempty"`
	// PendingApprovals is how many questions to a person the running turn waits for.
	PendingApprovals int `json:"pending_approvals,omitempty"`
	// PurgeAt is when the server removes the session with its log and files for good; nil unless it
	// is in the trash.
	PurgeAt      *time.Time `json:"purge_at,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	LastActiveAt time.Time  `json:"last_active_at"`
}

// Tier says how an agent got its history back at a resume.
type Tier string

// The tiers, best first: the agent's process still runs (live); the agent continues from
// the transcript that it stored (own), from a transcript rebuilt from the log (rebuilt),
// or from a textual history in its prompt (injected); there is no history (fresh).
const (
	TierLive     Tier = "live"
	TierOwn      Tier = "own"
	TierRebuilt  Tier = "rebuilt"
	TierInjected Tier = "injected"
	TierFresh    Tier = "fresh"
	// TierPending means that the agent is a CLI with a conversation of its own: the tier is
	// determined when the CLI starts, and recorded in agent_state.started.
	TierPending Tier = "pending"
)

// FilesState says what happened to the workspace's files at a resume, a rewind or a fork.
type FilesState string

// The states: the files were not touched (kept), they come from a checkpoint (restored), there were none (empty), or
// they are gone (lost).
const (
	FilesKept     FilesState = "kept"
	FilesRestored FilesState = "restored"
	FilesEmpty    FilesState = "empty"
	FilesLost     FilesState = "lost"
)

// Receipt records how a session was resumed: which tier, what was loaded, what
// was lost. It is the payload of session.resumed.
type Receipt struct {
	From  Status `json:"from"`
	Tier  Tier   `json:"tier"`
	Path  string `json:"path"`
	Turns int64  `json:"turns_loaded"`
	// Events is how many log entries the history was built from.
	Events int64      `json:"events_loaded"`
	Files  FilesState `json:"files"`
	// Box says what happened to the box: kept if it still runs with the session's files, else none.
	Box string `json:"box"`
	// Lost describes, for people, each thing that was lost; empty if nothing was.
	Lost []string `json:"lost,omitempty"`
	// AtRisk names the turns with commands whose files a power cut may have destroyed. It is set
	// in the first resume after the power cut, if no turn came before.
	AtRisk *FilesAtRisk `json:"files_at_risk,omitempty"`
	// DurationMS is how long the resume took, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
}
