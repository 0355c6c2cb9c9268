package holdfast

import (
	"encoding/json"
	"time"
)

// EventType names what an event records. The set is append-only (I-4); readers skip
// types they do not know.
type EventType string

// The numbered events: durable, in the log, each with a golden file under
// testdata/events once something emits it.
const (
	EventSessionCreated EventType = "session.created"
	EventSessionUpdated EventType = "session.updated"
	EventSessionPaused  EventType = "session.paused"
	EventSessionResumed EventType = "session.resumed"
	EventSessionEnded   EventType = "session.ended"
	EventSessionError   EventType = "session.error"

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

	EventEgressAllowed EventType = "egress.allowed"
	EventEgressDenied  EventType = "egress.denied"

	EventModelRequest EventType = "model.request"
	EventUsage        EventType = "usage"

	EventNotice EventType = "notice"

	// EventDamaged replaces an event in the database that is not as it was written. It is
	// read, never written.
	EventDamaged EventType = "event.damaged"
)

// The deltas: unnumbered, live only, never stored.
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
	// What a child says and does is no part of the session's conversation.
	Agent ChildID         `json:"agent,omitempty" doc:"The child agent that the event belongs to; absent: the session's own agent."`
	Data  json.RawMessage `json:"data"`
	Time  time.Time       `json:"time"`
}

// Decode unmarshals the payload into v, which should be the payload type of e.Type.
//
// A damaged event decodes only into a Damaged: a caller that needs the event must not
// treat its absence as an answer.
func (e Event) Decode(v any) error {
	if _, ok := v.(*Damaged); e.Type == EventDamaged && !ok {
		return e.damaged()
	}
	if err := json.Unmarshal(e.Data, v); err != nil {
		return Errorf(KindInternal, "event", "%s #%d does not decode: %w", e.Type, e.Seq, err)
	}
	return nil
}

func (e Event) damaged() error {
	return Errorf(KindInternal, "event", "event #%d of session %s is damaged in the database", e.Seq, e.Session).
		WithHint("holdfast doctor --verify shows all that is damaged; a backup of the data directory has it whole")
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

// With is e with another payload.
func (e Event) With(data any) (Event, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return e, Errorf(KindInternal, "event", "%s #%d does not encode: %w", e.Type, e.Seq, err)
	}
	e.Data = raw
	return e, nil
}

// EndsTurn reports whether e is a turn's terminal event.
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
	Trust        Trust     `json:"trust"`
	Runtime      string    `json:"runtime"`
	Model        string    `json:"model"`
	Mode         Mode      `json:"mode"`
	Title        string    `json:"title,omitempty"`
	Budget       *Budget   `json:"budget,omitempty"`
	TurnBudget   *Budget   `json:"turn_budget,omitempty"`
	Network      []string  `json:"network,omitzero"`
}

// SessionUpdated is the payload of session.updated: the fields that changed, and
// what they were before.
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
	// Network is the whole list.
	Network *[]string `json:"network,omitempty"`
}

// Reason is the payload of session.paused, session.ended, turn.interrupted and
// of tool.unknown's siblings that only say why.
type Reason struct {
	Reason string `json:"reason"`
}

// Failure is the payload of session.error.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// TurnQueuedData is the payload of turn.queued. The message is here because it enters the
// conversation only when the turn starts.
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
	// Kind, Message and Hint say why a turn failed; Message alone why one was
	// interrupted.
	Kind    Kind   `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Denials are the tool calls of the turn that were not allowed, the first hundred.
	Denials []DeniedCall `json:"denials,omitempty"`
}

// DeniedCall is a tool call that was not allowed. Input is as the model asked; it is
// absent above 2 KiB, and tool.requested has it.
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

// Text returns the message as a text; each part is a paragraph.
func (m UserMessage) Text() string { return textOf(m.Parts, "\n\n") }

// AssistantMessage is the payload of message.assistant: the answer of one model
// call, parts in model order.
type AssistantMessage struct {
	Parts []Part `json:"parts"`
	// Seen is the newest log entry the model call took into account: steering
	// messages after it come later in the conversation than this answer.
	Seen       int64  `json:"seen"`
	StopReason string `json:"stop_reason"`
	Model      string `json:"model"`
	Usage      Usage  `json:"usage"`
}

// Text returns what the answer says, without what lies between its texts.
func (m AssistantMessage) Text() string { return textOf(m.Parts, "") }

// Thinking is the payload of thinking. It belongs to the next message.assistant.
type Thinking struct {
	Text      string `json:"text"`
	Signature string `json:"signature,omitempty"`
	// Redacted marks thinking whose text the provider keeps to itself.
	Redacted bool `json:"redacted,omitempty"`
}

// ToolRequested is the payload of tool.requested: the model asked for a tool.
type ToolRequested struct {
	ToolUseID string          `json:"tool_use_id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

// ToolDecision is the payload of tool.allowed and tool.denied.
type ToolDecision struct {
	ToolUseID string `json:"tool_use_id"`
	// Tool and InputHash are of the call as it was requested.
	Tool      string `json:"tool,omitempty"`
	InputHash string `json:"input_hash,omitempty"`
	// By names what decided: "mode", "unknown tool", a policy.
	By string `json:"by"`
	// Rule is the rule that decided, where one did.
	Rule string `json:"rule,omitempty"`
	// Reason is for the model; empty on allow.
	Reason string `json:"reason,omitempty"`
	// Input is what the tool runs with instead of the requested input.
	Input json.RawMessage `json:"input,omitempty"`
}

// ToolStarted is the payload of tool.started: the intent, durable before the
// call is issued.
type ToolStarted struct {
	ToolUseID string `json:"tool_use_id"`
	Call      CallID `json:"call_id"`
	// Box and Boot say which box, in which life, the call was meant for. Empty
	// for tools that need no box.
	Box  BoxID  `json:"box_id,omitempty"`
	Boot string `json:"boot,omitempty"`
}

// ExitClass says how a call ended.
type ExitClass string

// The exit classes. Exit 137 does not mean out of memory: oom and pids are read
// from the box's own counters.
const (
	ExitOK      ExitClass = "ok"
	ExitExit    ExitClass = "exit"
	ExitSignal  ExitClass = "signal"
	ExitTimeout ExitClass = "timeout"
	ExitOOM     ExitClass = "oom"
	ExitPids    ExitClass = "pids"
	// ExitError: the call could not be carried out (no such file, bad input).
	ExitError ExitClass = "error"
	// ExitCanceled: the call was killed because its turn was interrupted.
	ExitCanceled ExitClass = "canceled"
)

// ToolFinished is the payload of tool.finished.
type ToolFinished struct {
	ToolUseID string    `json:"tool_use_id"`
	Call      CallID    `json:"call_id,omitempty"`
	Outcome   ExitClass `json:"outcome"`
	ExitCode  *int      `json:"exit_code,omitempty"`
	Signal    string    `json:"signal,omitempty"`
	// Content is what the model sees.
	Content    string  `json:"content"`
	IsError    bool    `json:"is_error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// ToolUnknown is the payload of tool.unknown: the box died with the call in
// flight, so nobody can know whether it ran. It is never run again.
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
	// InForce and Missing list protections and limits by name; a missing one
	// carries its reason after a colon.
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
	// OvershootBytes is what a box stopped for the disk took beyond its limit, or
	// what was missing to the server's reserve by then.
	OvershootBytes int64 `json:"overshoot_bytes,omitempty"`
}

// Notice is the payload of notice: something a reader should know.
type Notice struct {
	// Code is stable: "model.retry", "deltas.void", "agent_files.failed", …
	Code string `json:"code"`
	Text string `json:"text"`
	// Until is when what the notice tells of is over: the wake time of a parked turn.
	Until *time.Time `json:"until,omitempty"`
	// Level is warning, error or debug where it is not a plain notice.
	Level string `json:"level,omitempty"`
	// AtRisk belongs to NoticeFilesAtRisk.
	AtRisk *FilesAtRisk `json:"files_at_risk,omitempty"`
}

// NoticeFilesAtRisk is the code of the notice that a power cut may have taken files that
// commands had written. A session gets it once for each cut.
const NoticeFilesAtRisk = "files.at_risk"

// NoticeFilesUntold is the code of the notice that a call changed files, or may have, for
// which no fileChanged hook ran.
const NoticeFilesUntold = "files.untold"

// FilesAtRisk names the commands whose files a power cut may have taken: they ended
// before the kernel can be counted on to have written their files to the disk.
type FilesAtRisk struct {
	// Turns are the turns with such commands, by number.
	Turns []TurnAtRisk `json:"turns"`
	// Direct: there were commands outside of turns, like exec and terminals.
	Direct bool `json:"direct,omitempty"`
	// LastEvent is when the server recorded its last event before the cut. Files from
	// before Since are not affected.
	LastEvent time.Time `json:"last_event"`
	Since     time.Time `json:"since"`
}

// TurnAtRisk is a turn with commands whose files may be lost.
type TurnAtRisk struct {
	ID     TurnID `json:"turn_id"`
	Number int64  `json:"number"`
}

// NoticeVoid is the code of the notice that the deltas since the turn's last
// recorded entry are void: the answer begins anew.
const NoticeVoid = "deltas.void"

// ModelRequest is the payload of model.request: a request that left the server
// for a model's provider, and how it ended. The scripted model sends none.
type ModelRequest struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Status is ok, or the class of the failure that Message describes.
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
	// Attempt counts the tries of one call from 1.
	Attempt int `json:"attempt"`
	// RequestID is the provider's own name for it.
	RequestID string `json:"request_id,omitempty"`
	// Messages and Bytes say how large the conversation was.
	Messages int   `json:"messages"`
	Bytes    int64 `json:"bytes"`
	// Usage of an ok request stands in message.assistant as well, unless it was
	// brokered; that of a failed one only here.
	Usage Usage `json:"usage"`
	// Brokered: an agent in the box asked, through the server. What it used up counts
	// here, and not in the messages that the agent told of.
	Brokered bool `json:"brokered,omitempty"`
	// Sent and Answer are what was said, where the server is set to record it.
	Sent       string  `json:"sent,omitempty"`
	Answer     string  `json:"answer,omitempty"`
	FirstMS    float64 `json:"first_ms,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// StatusOK is the Status of a model request that was answered.
const StatusOK = "ok"

// UsageData is the payload of usage: what the session used up, recorded with the
// end of a turn that a provider was asked in or that a budget bounds.
type UsageData struct {
	Turn    Spent   `json:"turn"`
	Session Spent   `json:"session"`
	Budget  *Budget `json:"budget,omitempty"`
}

// TextDelta is the payload of text.delta and thinking.delta.
type TextDelta struct {
	Text string `json:"text"`
	// At is where in the text (the thinking) of the answer it begins, in bytes: a
	// reader sees what it missed, and at 0 that the answer begins anew.
	At int64 `json:"at,omitempty"`
}

// ToolOutput is the payload of tool.output.
type ToolOutput struct {
	ToolUseID string `json:"tool_use_id"`
	// Stream is stdout or stderr.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}
