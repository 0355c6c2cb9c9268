package holdfast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ApprovalState says where a question to a person stands.
type ApprovalState string

// The states of an approval. All but pending are final.
const (
	ApprovalPending ApprovalState = "pending"
	ApprovalAllowed ApprovalState = "allowed"
	ApprovalDenied  ApprovalState = "denied"
	// ApprovalExpired: nobody answered in time, or the turn ended before; that is a
	// denial.
	ApprovalExpired ApprovalState = "expired"
)

// ApprovalScope says for how long an allowing answer holds.
type ApprovalScope string

// ParseApprovalState accepts a state; the empty one is invalid.
func ParseApprovalState(s string) (ApprovalState, error) {
	if slices.Contains(Words[ApprovalState](), ApprovalState(s)) {
		return ApprovalState(s), nil
	}
	return "", Errorf(KindInvalid, "approval state", "%s is not a state of an approval", Quote(s)).
		WithHint("use pending, allowed, denied, expired or all")
}

// The scopes.
const (
	ScopeOnce      ApprovalScope = "once"
	ScopeSession   ApprovalScope = "session"
	ScopeWorkspace ApprovalScope = "workspace"
)

// parseApprovalScope accepts a scope; the empty string is once.
func parseApprovalScope(s string) (ApprovalScope, error) {
	if s == "" {
		return ScopeOnce, nil
	}
	if slices.Contains(Words[ApprovalScope](), ApprovalScope(s)) {
		return ApprovalScope(s), nil
	}
	return "", Errorf(KindInvalid, "approval scope", "%s is not a scope of an answer", Quote(s)).
		WithHint("use once, session or workspace")
}

// Approval is a question to a person: may this tool call run. It is bound to the
// turn, the tool use and the input; an answer counts for exactly that call.
type Approval struct {
	ID        ApprovalID      `json:"id"`
	Session   SessionID       `json:"session_id"`
	Turn      TurnID          `json:"turn_id"`
	ToolUseID string          `json:"tool_use_id"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input"`
	// InputHash is InputHash of Input.
	InputHash string `json:"input_hash"`
	// By and Rule name what wanted it asked, Reason says why.
	By     string `json:"by"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	// Suggestions are the rules that an answer for longer than once grants unless it
	// names others: one for each part of the call that nothing allows yet. Empty when
	// rules cannot cover exactly this call.
	Suggestions []string      `json:"suggestions,omitempty"`
	State       ApprovalState `json:"state"`
	AskedAt     time.Time     `json:"asked_at"`
	// ExpiresAt is when silence becomes a denial; nil is never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// AnsweredAt, AnsweredBy, Scope and Answer are set by the end of the question;
	// Answer is the person's reason, which the model reads on a denial.
	AnsweredAt *time.Time    `json:"answered_at,omitempty"`
	AnsweredBy string        `json:"answered_by,omitempty"`
	Scope      ApprovalScope `json:"scope,omitempty"`
	Answer     string        `json:"answer,omitempty"`
}

// ApprovalAnswered is the payload of approval.answered and approval.expired; that
// of approval.asked is the Approval.
type ApprovalAnswered struct {
	ID        ApprovalID    `json:"id"`
	ToolUseID string        `json:"tool_use_id"`
	State     ApprovalState `json:"state"`
	By        string        `json:"by,omitempty"`
	Scope     ApprovalScope `json:"scope,omitempty"`
	// Granted are the rules that hold from now on, for a scope beyond once.
	Granted []string `json:"rules,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// ApprovalFilter selects approvals. Empty fields do not filter, but for State.
type ApprovalFilter struct {
	// State is a state or "all"; empty is pending.
	State string
	// Session is the whole id of a session, IDPrefix the beginning of an approval's.
	Session, IDPrefix string
	// Cursor is the Next of the page before.
	Cursor string
	// Limit is the page size, 1-1000; 0 is 50.
	Limit int
}

// ApprovalPage is one page of approvals, the longest asked first. Next is the
// cursor of the page after it, empty on the last.
type ApprovalPage struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitempty"`
}

// AnswerApproval is the request to answer an approval.
type AnswerApproval struct {
	Decision string        `json:"decision" doc:"Whether the call runs."`
	Scope    ApprovalScope `json:"scope,omitempty" doc:"How long an allow holds; absent: once."`
	Rules    []string      `json:"rules,omitempty" doc:"Replace the suggested rules of a scope beyond once. At most 64."`
	Reason   string        `json:"reason,omitempty" doc:"Kept; on a denial the model reads it."`
}

// ApprovalDecisions lists what can be decided.
func ApprovalDecisions() []string { return []string{"allow", "deny"} }

const (
	// maxAnswer bounds each text of an answer, in bytes.
	maxAnswer = 2000
	// maxAnswerRules bounds the rules of one answer.
	maxAnswerRules = 64
)

// Check refuses an answer that makes no sense whatever it is to; its rules are not
// parsed.
func (r AnswerApproval) Check() error {
	const op = "approval"
	scope, err := parseApprovalScope(string(r.Scope))
	if err != nil {
		return err
	}
	for i, s := range append([]string{r.Reason}, r.Rules...) {
		name := "rule"
		if i == 0 {
			name = "reason"
		}
		if len(s) > maxAnswer || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return Errorf(KindInvalid, op, "%s %s is not text of at most %d bytes", name, Quote(s), maxAnswer).
				WithHint("give a shorter %s, without control characters", name)
		}
	}
	switch {
	case !slices.Contains(ApprovalDecisions(), r.Decision):
		return Errorf(KindInvalid, op, "decision %s is not an answer", Quote(r.Decision)).WithHint("use allow or deny")
	case r.Decision == "deny" && (r.Scope != "" || len(r.Rules) > 0):
		return Errorf(KindInvalid, op, "scope and rules are for allow, the decision is deny").WithHint("leave scope and rules out, or decide allow")
	case len(r.Rules) > 0 && scope == ScopeOnce:
		return Errorf(KindInvalid, op, "rules are for a scope beyond once").WithHint("choose scope session or workspace, or leave the rules out")
	case len(r.Rules) > maxAnswerRules:
		return Errorf(KindTooLarge, op, "the answer names %d rules, at most %d are taken", len(r.Rules), maxAnswerRules).
			WithHint("name rules that cover more")
	}
	return nil
}

// HookRan is the payload of hook.ran: a hook was run, and what came of it.
type HookRan struct {
	// Event is the hook's event, Hook its name: the command, the address, or the
	// name a function was registered with.
	Event string `json:"event"`
	Hook  string `json:"hook"`
	// Where is box, host, http or server.
	Where     string `json:"where"`
	ToolUseID string `json:"tool_use_id,omitempty"`
	// MessageSeq is the message.user that the run was about.
	MessageSeq int64 `json:"message_seq,omitempty"`
	// Call names the run for good: it is what a hook that ran is found again by, and
	// in a box the id of its call.
	Call CallID `json:"call_id,omitempty"`
	// Outcome is how the hook's run ended: ok, blocked, failed, timeout or refused.
	Outcome  string `json:"outcome"`
	ExitCode *int   `json:"exit_code,omitempty"`
	// Message is what it said, Reason why it blocked or failed.
	Message    string  `json:"message,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	// Decision is allow, ask or deny where the run had an opinion.
	Decision string `json:"decision,omitempty"`
	// Input replaces the tool's input, Output what the tool answered.
	Input  json.RawMessage `json:"input,omitempty"`
	Output *string         `json:"output,omitempty"`
	// Context are texts for the model; they are part of the conversation.
	Context []string `json:"context,omitempty"`
	// Rules change the session's rules from here on.
	Rules        []RuleChange      `json:"rules,omitempty"`
	Notification *HookNotification `json:"notification,omitempty"`
}

// HookNotification is what a hook wants a person to know. Level is info, warning,
// error or debug.
type HookNotification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Level string `json:"level"`
}

// RulesChanged is the payload of rules.changed: the session's own permission
// rules are other ones from here on.
type RulesChanged struct {
	// By says who changed them: an approval's id, hook, policy, or a person.
	By      string       `json:"by"`
	Changes []RuleChange `json:"changes"`
}

// RuleChange is one change of the permission rules of a session or workspace.
type RuleChange struct {
	Scope ApprovalScope `json:"scope"`
	// Behavior is allow, ask, deny, or grant: allowed instead of asking.
	Behavior string `json:"behavior"`
	Rule     string `json:"rule"`
	Removed  bool   `json:"removed,omitempty"`
}

// InputHash is the SHA-256 of a tool's input as it is recorded, in hexadecimal.
func InputHash(input json.RawMessage) string {
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}
