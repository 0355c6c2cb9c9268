package holdfast

import "time"

// Status is the state of a session. The zero value is illegal.
type Status string

// The session states. Starting exists only while a resume is executed.
const (
	StatusStarting Status = "starting"
	StatusActive   Status = "active"
	StatusPaused   Status = "paused"
	StatusError    Status = "error"
	StatusEnded    Status = "ended"
)

// transitions is the state machine (I-6); the store refuses any other step.
var transitions = map[Status][]Status{
	StatusActive:   {StatusPaused, StatusError, StatusEnded},
	StatusPaused:   {StatusStarting, StatusEnded},
	StatusError:    {StatusStarting, StatusEnded},
	StatusStarting: {StatusActive, StatusError, StatusEnded},
	StatusEnded:    {},
}

// ParseStatus accepts a legal status.
func ParseStatus(s string) (Status, error) {
	if _, ok := transitions[Status(s)]; ok {
		return Status(s), nil
	}
	return "", Errorf(KindInvalid, "status", "%s is not a session status", Quote(s)).
		WithHint("use starting, active, paused, error or ended")
}

// CanBecome reports whether the state machine has the step from s to next.
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
	Trust        Trust     `json:"trust"`
	Runtime      string    `json:"runtime"`
	Model        string    `json:"model"`
	Mode         Mode      `json:"mode"`
	Title        string    `json:"title"`
	Tags         []string  `json:"tags"`
	// Env shows the names given at creation, each with the value "***".
	Env map[string]string `json:"env,omitempty"`
	// Error is why status is error; empty otherwise.
	Error string `json:"error,omitempty"`
	// Revision rises by one with every change of this record.
	Revision int64 `json:"revision"`
	// LastSeq is the sequence number of the newest event.
	LastSeq int64 `json:"last_seq"`
	// CompletedTurns counts the turns that reached turn.completed.
	CompletedTurns int64 `json:"completed_turns"`
	// Budget bounds the whole session, TurnBudget each of its turns; nil is no bound.
	Budget     *Budget `json:"budget,omitempty"`
	TurnBudget *Budget `json:"turn_budget,omitempty"`
	// Network is what its box may connect to, within what the server grants; nil takes
	// what the agent or the server names, an empty list is nothing.
	Network []string `json:"network,omitzero"`
	// Spent is what the ended turns used up.
	Spent Spent `json:"spent"`
	// Source is where its first files come from; nil: the agent's version alone.
	Source *Source `json:"source,omitempty"`
	// ParkedUntil is when the running turn asks its model again, while it waits for
	// a limit of the provider to pass.
	ParkedUntil *time.Time `json:"parked_until,omitempty"`
	// PendingApprovals is how many questions to a person the running turn waits for.
	PendingApprovals int       `json:"pending_approvals,omitempty"`
	CreatedAt        time.Time `json:"created_at"`
	LastActiveAt     time.Time `json:"last_active_at"`
}

// Tier is the rung of the resume ladder that was taken.
type Tier string

// The tiers, best first.
const (
	TierLive Tier = "live"
	// TierOwn: the agent goes on from what it kept itself.
	TierOwn      Tier = "own"
	TierRebuilt  Tier = "rebuilt"
	TierInjected Tier = "injected"
	TierFresh    Tier = "fresh"
	// TierPending: the session's agent keeps a conversation of its own, and its next
	// start decides; agent_state.started is its receipt.
	TierPending Tier = "pending"
)

// FilesState says what became of the workspace's files at a resume.
type FilesState string

// The file states of a receipt.
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
	// Events is how many log entries the history was read from.
	Events int64      `json:"events_loaded"`
	Files  FilesState `json:"files"`
	// Box is what happened to the box: kept, adopted, none, lost.
	Box string `json:"box"`
	// Lost names, for a person, what did not survive; empty when nothing was lost.
	Lost []string `json:"lost,omitempty"`
	// AtRisk names files that may be lost since a power cut, from the cut to the first
	// resume or turn that follows.
	AtRisk *FilesAtRisk `json:"files_at_risk,omitempty"`
	// DurationMS is how long the resume took, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
}
