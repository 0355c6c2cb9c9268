package holdfast

import (
	"encoding/json"
	"time"
)

// EventType names what an event records. The set is append-only (I-4); readers skip
// types they do not know.
type EventType string

// The types of numbered events. All but EventDamaged are durable entries of a session's
// log, and each type has a golden file in testdata/events once the server emits it.
const (
	EventSessionCreated EventType = "session.created"
	EventSessionUpdated EventType = "session.updated"
	EventSessionPaused  EventType = "session.paused"
	EventSessionResumed EventType = "session.resumed"
	EventSessionEnded   EventType = "session.ended"
	EventSessionError   EventType = "session.error"
	EventSessionRewound EventType = "session.rewound"
	EventSessionForked  EventType = "session.forked"
	// EventSessionTrashed and EventSessionUntrashed mean that the session was moved to the trash, and out of it.
	EventSessionTrashed   EventType = "session.trashed"
	EventSessionUntrashed EventType = "session.untrashed"

	EventTurnQueued      EventType = "turn.queued"
	EventTurnStarted     EventType = "turn.started"
	EventTurnCompleted   EventType = "turn.completed"
	EventTurnFailed      EventType = "turn.failed"
	EventTurnInterrupted EventType = "turn.interrupted"

	EventMessageUser      EventType = "message.user"
	EventMessageAssistant EventType = "message.assistant"
	EventThinking         EventType = "thinking"

	EventToolRequested EventType = "tool.requested"
	EventToolAllowed   EventType = "tool.allowed"
	EventToolDenied    EventType = "tool.denied"
	EventToolStarted   EventType = "tool.started"
	EventToolFinished  EventType = "tool.finished"
	EventToolUnknown   EventType = "tool.unknown"

	EventApprovalAsked    EventType = "approval.asked"
	EventApprovalAnswered EventType = "approval.answered"
	EventApprovalExpired  EventType = "approval.expired"
	EventRulesChanged     EventType = "rules.changed"
	EventHookRan          EventType = "hook.ran"

	EventBoxQueued  EventType = "box.queued"
	EventBoxStarted EventType = "box.started"
	EventBoxStopped EventType = "box.stopped"
	EventBoxFrozen  EventType = "box.frozen"
	EventBoxOOM     EventType = "box.oom"
	EventBoxPids    EventType = "box.pids"
	EventBoxLost    EventType = "box.lost"

	EventAgentStarted     EventType = "agent_state.started"
	EventAgentMirrored    EventType = "agent_state.mirrored"
	EventAgentQuarantined EventType = "agent_state.quarantined"

	EventFilesImported EventType = "files.imported"

	EventSnapshotTaken  EventType = "snapshot.taken"
	EventSnapshotFailed EventType = "snapshot.failed"

	EventCheckpointHeld     EventType = "checkpoint.held"
	EventCheckpointReleased EventType = "checkpoint.released"

	EventEgressAllowed EventType = "egress.allowed"
	EventEgressDenied  EventType = "egress.denied"

	EventModelRequest EventType = "model.request"
	EventUsage        EventType = "usage"

	EventNotice EventType = "notice"

	// EventDamaged is returned in place of an event whose record in the database is
	// corrupted. It is never written to the database.
	EventDamaged EventType = "event.damaged"
)

// The types of deltas: events without a number, which only live readers get and which
// are never stored.
const (
	DeltaText       EventType = "text.delta"
	DeltaThinking   EventType = "thinking.delta"
	DeltaToolOutput EventType = "tool.output"
)

// Event is an entry of a session's log, or a delta (Seq 0). It is the wire type
// of the event stream; it is immutable once made.
type Event struct {
	Session SessionID `json:"session_id"`
	Seq     int64     `json:"seq,omitempty"`
	Type    EventType `json:"type"`
	Turn    TurnID    `json:"turn_id,omitempty"`
	// Agent is the child agent that the event belongs to; empty for the session's own agent.
	// Events of child agents are not part of the session's conversation.
	Agent ChildID         `json:"agent,omitempty" doc:"The child agent that the event belongs to; absent: the session's own agent."`
	Data  json.RawMessage `json:"data"`
	Time  time.Time       `json:"time"`
}

// Decode unmarshals the payload into v, which should be the payload type of e.Type.
//
// A damaged event decodes only into a *Damaged and otherwise returns an error, because a
// caller that needs the event must not go on as if it had never been recorded.
func (e Event) Decode(v any) error {
	if _, ok := v.(*Damaged); e.Type == EventDamaged && !ok {
		return e.damaged()
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return Errorf(KindInternal, "event", "cannot decode the payload of event %s #%d: %w", e.Type, e.Seq, err)
	}
	return nil
}

func (e Event) damaged() error {
	return Errorf(KindInternal, "event", "event #%d of session %s is damaged in the database", e.Seq, e.Session).
		WithHint("list all damage with: holdfast doctor --verify; restore the event from a backup of the data directory")
}

// Damaged is the payload of event.damaged.
type Damaged struct {
	Reason string `json:"reason"`
}

// Whole returns an error for a damaged event, and nil for any other.
func (e Event) Whole() error {
	if e.Type == EventDamaged {
		return e.damaged()
	}
	return nil
}

// With returns e with data, encoded as JSON, as its payload.
func (e Event) With(data any) (Event, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return e, Errorf(KindInternal, "event", "cannot encode the payload of event %s #%d: %w", e.Type, e.Seq, err)
	}
	e.Data = raw
	return e, nil
}

// EndsTurn reports whether e ends a turn: it was completed, failed or interrupted.
func (e Event) EndsTurn() bool {
	switch e.Type {
	case EventTurnCompleted, EventTurnFailed, EventTurnInterrupted:
		return true
	}
	return false
}

// SessionCreated is the payload of session.created.
type SessionCreated struct {
	Agent        AgentName `json:"agent"`
	AgentVersion VersionID `json:"agent_version"`
	Workspace    Slug      `json:"workspace_id,omitempty"`
	Mount        string    `json:"mount,omitempty"`
	Trust        Trust     `json:"trust"`
	Runtime      string    `json:"runtime"`
	Model        string    `json:"model"`
	Mode         Mode      `json:"mode"`
	Title        string    `json:"title,omitempty"`
	Budget       *Budget   `json:"budget,omitempty"`
	TurnBudget   *Budget   `json:"turn_budget,omitempty"`
	Network      []string  `json:"network,omitzero"`
}

// SessionUpdated is the payload of session.updated: the new values of the fields that
// changed, and in From their previous values.
type SessionUpdated struct {
	SessionChange
	From SessionChange `json:"from,omitzero"`
}

// SessionChange holds those fields of a session that an update changed.
type SessionChange struct {
	Title   *string   `json:"title,omitempty"`
	Tags    *[]string `json:"tags,omitempty"`
	Mode    *Mode     `json:"mode,omitempty"`
	Model   *string   `json:"model,omitempty"`
	Trust   *Trust    `json:"trust,omitempty"`
	Runtime *string   `json:"runtime,omitempty"`
	// Budget and TurnBudget hold every bound, not only those that changed.
	Budget     *Budget `json:"budget,omitempty"`
	TurnBudget *Budget `json:"turn_budget,omitempty"`
	// Network is the complete new list of destinations, not only the changed ones.
	Network *[]string `json:"network,omitempty"`
}

// Reason is the payload of events that only carry a reason, such as session.paused and
// session.ended.
type Reason struct {
	Reason string `json:"reason"`
}

// Failure is the payload of session.error and of snapshot.failed.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// TurnQueuedData is the payload of turn.queued. It contains the message, because the
// message.user event is recorded only when the turn starts.
type TurnQueuedData struct {
	Number   int64  `json:"number"`
	Parts    []Part `json:"parts"`
	Position int    `json:"position"`
}

// TurnStartedData is the payload of turn.started.
type TurnStartedData struct {
	Number     int64 `json:"number"`
	MessageSeq int64 `json:"message_seq"`
}

// TurnEnded is the payload of turn.completed, turn.failed and turn.interrupted.
type TurnEnded struct {
	Number     int64  `json:"number"`
	MessageSeq int64  `json:"message_seq"`
	Result     string `json:"result,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	Usage      Usage  `json:"usage"`
	Steps      int    `json:"steps"`
	// Kind, Message and Hint say why the turn failed. For an interrupted turn only
	// Message is set, and says why it was interrupted.
	Kind    Kind   `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Denials are the first hundred tool calls of the turn that were denied.
	Denials []DeniedCall `json:"denials,omitempty"`
}

// DeniedCall is a tool call that was denied. Input is the input that the model requested;
// it is absent if it is larger than 2 KiB: the tool.requested event has all of it.
type DeniedCall struct {
	ToolUseID string          `json:"tool_use_id"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// UserMessage is the payload of message.user. Steer marks a message that joined
// a running turn.
type UserMessage struct {
	Parts []Part `json:"parts"`
	Steer bool   `json:"steer,omitempty"`
}

// Text returns the message's parts as one text, separated by empty lines.
func (m UserMessage) Text() string { return textOf(m.Parts, "\n\n") }

// AssistantMessage is the payload of message.assistant: the answer of one model
// call, parts in model order.
type AssistantMessage struct {
	Parts []Part `json:"parts"`
	// Seen is the sequence number of the newest log entry that was part of the model
	// call: steering messages after it come after this answer in the conversation.
	Seen       int64  `json:"seen"`
	StopReason string `json:"stop_reason"`
	Model      string `json:"model"`
	Usage      Usage  `json:"usage"`
}

// Text returns the answer's text parts joined. It leaves out tool uses and thinking; see Part.Shown for unknown types.
func (m AssistantMessage) Text() string { return textOf(m.Parts, "") }

// Thinking is the payload of thinking: reasoning of the model. It belongs to the
// message.assistant event that follows.
type Thinking struct {
	Text      string `json:"text"`
	Signature string `json:"signature,omitempty"`
	// Redacted is true if the provider withheld the text of the thinking.
	Redacted bool `json:"redacted,omitempty"`
}

// ToolRequested is the payload of tool.requested: the model requested a tool call.
type ToolRequested struct {
	ToolUseID string          `json:"tool_use_id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

// ToolDecision is the payload of tool.allowed and tool.denied.
type ToolDecision struct {
	ToolUseID string `json:"tool_use_id"`
	// Tool and InputHash are the tool's name and the hash of its input as the model
	// requested them.
	Tool      string `json:"tool,omitempty"`
	InputHash string `json:"input_hash,omitempty"`
	// By names the stage that decided, such as "mode", "unknown tool" or a policy.
	By string `json:"by"`
	// Rule is the rule that decided; empty if no rule did.
	Rule string `json:"rule,omitempty"`
	// Reason says why the call was denied; the model gets it. It is empty on allow.
	Reason string `json:"reason,omitempty"`
	// Input, if set, replaces the requested input: the tool runs with it.
	Input json.RawMessage `json:"input,omitempty"`
}

// ToolStarted is the payload of tool.started: the intent to make a tool call. It is
// durable before the call is issued.
type ToolStarted struct {
	ToolUseID string `json:"tool_use_id"`
	Call      CallID `json:"call_id"`
	// Box and Boot name the box, and the boot of that box, in which the call was to run.
	// They are empty for tools that need no box.
	Box  BoxID  `json:"box_id,omitempty"`
	Boot string `json:"boot,omitempty"`
}

// ExitClass says how a call ended.
type ExitClass string

// The exit classes. Oom and pids (out of memory, too many processes) come from the
// counters of the box's cgroup, never from an exit code such as 137.
const (
	ExitOK      ExitClass = "ok"
	ExitExit    ExitClass = "exit"
	ExitSignal  ExitClass = "signal"
	ExitTimeout ExitClass = "timeout"
	ExitOOM     ExitClass = "oom"
	ExitPids    ExitClass = "pids"
	// ExitError means that the call could not be carried out (no such file, bad input).
	ExitError ExitClass = "error"
	// ExitCanceled means that the call was killed, or not run, because its turn or the call itself was interrupted.
	ExitCanceled ExitClass = "canceled"
)

// ToolFinished is the payload of tool.finished.
type ToolFinished struct {
	ToolUseID string    `json:"tool_use_id"`
	Call      CallID    `json:"call_id,omitempty"`
	Outcome   ExitClass `json:"outcome"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	Signal    string    `json:"signal,omitempty"`
	// Content is the tool's result as the model gets it.
	Content    string  `json:"content"`
	IsError    bool    `json:"is_error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// ToolUnknown is the payload of tool.unknown: it cannot be known whether the call ran,
// for instance because its box or the server ended meanwhile. The call is never repeated.
type ToolUnknown struct {
	ToolUseID string `json:"tool_use_id"`
	Call      CallID `json:"call_id"`
	Reason    string `json:"reason"`
}

// BoxQueued is the payload of box.queued.
type BoxQueued struct {
	Position int `json:"position"`
}

// BoxStarted is the payload of box.started.
type BoxStarted struct {
	Box    BoxID  `json:"box_id"`
	Boot   string `json:"boot"`
	Driver string `json:"driver"`
	// InForce lists the names of the protections and limits that the box has, Missing
	// those that it lacks, each with ": " and the reason.
	InForce    []string `json:"in_force"`
	Missing    []string `json:"missing,omitempty"`
	DurationMS float64  `json:"duration_ms"`
}

// BoxEnded is the payload of box.stopped, box.lost, box.frozen, box.oom and box.pids.
type BoxEnded struct {
	Box    BoxID  `json:"box_id"`
	Boot   string `json:"boot,omitempty"`
	Reason string `json:"reason"`
	// Processes names background processes that ended with the box.
	Processes []string `json:"processes,omitempty"`
	// OvershootBytes is set if the box was stopped for its use of the disk: how many bytes
	// it was over its limit, or how many the disk's free space was below the reserve.
	OvershootBytes int64 `json:"overshoot_bytes,omitempty"`
}

// Notice is the payload of notice: a message for the people who read the log.
type Notice struct {
	// Code identifies the kind of notice and never changes: "model.retry", "deltas.void",
	// "trust.lowered", …
	Code string `json:"code"`
	Text string `json:"text"`
	// Until is when the described condition ends, such as the time at which a waiting turn
	// continues.
	Until *time.Time `json:"until,omitempty"`
	// Level is warning, error or debug; empty for an ordinary notice.
	Level string `json:"level,omitempty"`
	// AtRisk is set in notices with the code NoticeFilesAtRisk.
	AtRisk *FilesAtRisk `json:"files_at_risk,omitempty"`
}

// NoticeFilesUntold is the code of the notice that a call changed files, or may have, for
// which no fileChanged hook ran.
const NoticeFilesUntold = "files.untold"

// FilesAtRisk names the turns with commands whose files a power cut may have destroyed: the
// commands ran so shortly before the power cut that the kernel may not have written their
// files to the disk.
type FilesAtRisk struct {
	// Turns are the turns with commands whose files may be lost, in the order of the turns' numbers.
	Turns []TurnAtRisk `json:"turns"`
	// Direct is true if a command whose files may be lost ran outside of turns, for instance by exec or in a terminal.
	Direct bool `json:"direct,omitempty"`
	// LastEvent is when the server recorded its last event before the power cut. Files
	// written before Since are not affected.
	LastEvent time.Time `json:"last_event"`
	Since     time.Time `json:"since"`
}

// TurnAtRisk is a turn with commands whose files may be lost.
type TurnAtRisk struct {
	ID     TurnID `json:"turn_id"`
	Number int64  `json:"number"`
}

// NoticeVoid is the code of the notice that the deltas since the turn's last recorded
// entry are void: a reader has to discard them, because the model's answer starts over.
const NoticeVoid = "deltas.void"

// ModelRequest is the payload of model.request: a request that left the server
// for a model's provider, and how it ended. The scripted model sends none.
type ModelRequest struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Status is ok, or the class of the failure that Message describes.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	// Attempt numbers the attempts of one model call from 1.
	Attempt int `json:"attempt"`
	// RequestID is the id that the provider gave the request.
	RequestID string `json:"request_id,omitempty"`
	// Messages and Bytes are the size of the conversation that was sent.
	Messages int   `json:"messages"`
	Bytes    int64 `json:"bytes"`
	// Usage is what the request used up. The message.assistant event repeats it if the
	// request succeeded and was not brokered.
	Usage Usage `json:"usage"`
	// Brokered is true if an agent CLI in the box made the request through the server's
	// broker. Its usage is counted from this event, not from the agent's messages.
	Brokered bool `json:"brokered,omitempty"`
	// Sent and Answer are the request and the response in full, if the server is
	// configured to record them.
	Sent       string  `json:"sent,omitempty"`
	Answer     string  `json:"answer,omitempty"`
	FirstMS    float64 `json:"first_ms,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// StatusOK is the ModelRequest.Status of a request that succeeded.
const StatusOK = "ok"

// UsageData is the payload of usage: what the turn and the session used up. It is
// recorded at the end of a turn that called a provider or for which a budget is set.
type UsageData struct {
	Turn    Spent   `json:"turn"`
	Session Spent   `json:"session"`
	Budget  *Budget `json:"budget,omitempty"`
}

// TextDelta is the payload of text.delta and thinking.delta.
type TextDelta struct {
	Text string `json:"text"`
	// At is the offset in bytes at which Text begins in the whole text (or thinking) of the
	// answer. It shows a reader whether deltas are missing; 0 means that the answer begins,
	// or starts over.
	At int64 `json:"at,omitempty"`
}

// ToolOutput is the payload of tool.output.
type ToolOutput struct {
	ToolUseID string `json:"tool_use_id"`
	// Stream is stdout or stderr.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}
