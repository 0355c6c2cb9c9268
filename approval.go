package holdfast

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// ApprovalState says whether a question to a person was answered, and how.
type ApprovalState string

// The states of an approval. All but pending are final.
const (
	ApprovalPending ApprovalState = "pending"
	ApprovalAllowed ApprovalState = "allowed"
	ApprovalDenied  ApprovalState = "denied"
	// ApprovalExpired means that nobody answered in time or before the turn ended. It
	// has the effect of a denial.
	ApprovalExpired ApprovalState = "expired"
)

// ApprovalScope says how far an allowing answer reaches: this call only (once), the
// session, or the workspace.
type ApprovalScope string

// The scopes of an answer.
const (
	ScopeOnce      ApprovalScope = "once"
	ScopeSession   ApprovalScope = "session"
	ScopeWorkspace ApprovalScope = "workspace"
)

func (ApprovalScope) parse(s string) (string, error) {
	return parseWord[ApprovalScope]("approval scope", "the scope of an answer to an approval", cmp.Or(s, string(ScopeOnce)))
}

// Approval is a question to a person: may this tool call run? It is bound to the
// turn, the tool use and the input; an answer is valid for exactly that call.
type Approval struct {
	ID        ApprovalID      `json:"id"`
	Session   SessionID       `json:"session_id"`
	Turn      TurnID          `json:"turn_id"`
	ToolUseID string          `json:"tool_use_id"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input"`
	// InputHash is the SHA-256 of Input in hexadecimal, as policy.InputHash computes it.
	InputHash string `json:"input_hash"`
	// By and Rule name the policy stage and the rule because of which a person is asked; Reason says
	// why.
	By     string `json:"by"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	// Suggestions are the rules that an answer with scope session or workspace grants
	// unless the answer names other rules: one for each part of the call that no rule
	// allows yet. The list is empty if no rules cover exactly this call.
	Suggestions []string      `json:"suggestions,omitempty"`
	State       ApprovalState `json:"state"`
	AskedAt     time.Time     `json:"asked_at"`
	// ExpiresAt is when an unanswered question becomes a denial; nil means never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// AnsweredAt, AnsweredBy, Scope and Answer are set when the question is answered or
	// expires. Answer is the person's reason; on a denial the model gets it.
	AnsweredAt *time.Time    `json:"answered_at,omitempty"`
	AnsweredBy string        `json:"answered_by,omitempty"`
	Scope      ApprovalScope `json:"scope,omitempty"`
	Answer     string        `json:"answer,omitempty"`
}

// ApprovalAnswered is the payload of approval.answered and approval.expired. (The
// payload of approval.asked is an Approval.)
type ApprovalAnswered struct {
	ID        ApprovalID    `json:"id"`
	ToolUseID string        `json:"tool_use_id"`
	State     ApprovalState `json:"state"`
	By        string        `json:"by,omitempty"`
	Scope     ApprovalScope `json:"scope,omitempty"`
	// Granted are the rules that the answer adds, with behavior grant, if its scope is session or workspace.
	Granted []string `json:"rules,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// ApprovalFilter selects approvals. An empty field does not filter, except for State.
type ApprovalFilter struct {
	// State is the name of a state, or "all"; empty means pending.
	State string
	// Session is a complete session id, IDPrefix the beginning of an approval's id.
	Session, IDPrefix string
	// Cursor is the Next of the previous page; empty asks for the first page.
	Cursor string
	// Limit is the page size, 1-1000; 0 is 50.
	Limit int
}

// ApprovalPage is one page of approvals, the oldest question first. Next is the
// cursor of the following page, empty on the last page.
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

const (
	// maxAnswer is the greatest length of the reason and of each rule of an answer, in bytes.
	maxAnswer = 2000
	// maxAnswerRules is how many rules one answer may name.
	maxAnswerRules = 64
)

// Check refuses an answer that is invalid for every question, such as rules with scope
// once. It does not parse the rules.
func (r AnswerApproval) Check() error {
	const op = "approval"
	scope, err := Parse[ApprovalScope](string(r.Scope))
	if err != nil {
		return err
	}
	for i, s := range append([]string{r.Reason}, r.Rules...) {
		name := "rule"
		if i == 0 {
			name = "reason"
		}
		if len(s) > maxAnswer || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return Errorf(KindInvalid, op, "the approval answer's %s %s is longer than %d bytes or is not UTF-8 text without NUL", name, Quote(s), maxAnswer).
				WithHint("give the answer a shorter %s, as UTF-8 text without NUL", name)
		}
	}
	switch {
	case r.Decision != "allow" && r.Decision != "deny":
		return Errorf(KindInvalid, op, "%s is not a decision on an approval", Quote(r.Decision)).WithHint("decide allow or deny")
	case r.Decision == "deny" && (r.Scope != "" || len(r.Rules) > 0):
		return Errorf(KindInvalid, op, "an answer that denies an approval cannot have a scope or rules").WithHint("leave scope and rules out, or decide allow")
	case len(r.Rules) > 0 && scope == ScopeOnce:
		return Errorf(KindInvalid, op, "an approval answer with scope once cannot grant permission rules").WithHint("choose scope session or workspace for the answer, or leave its rules out")
	case len(r.Rules) > maxAnswerRules:
		return Errorf(KindTooLarge, op, "the approval answer has %d permission rules, more than the limit of %d", len(r.Rules), maxAnswerRules).
			WithHint("grant fewer rules, each of which covers more")
	}
	return nil
}

// HookRan is the payload of hook.ran: one run of a hook and its result.
type HookRan struct {
	// Event is the hook event, such as PreToolUse. Hook names the hook: its command, its
	// URL, or the name under which a Go function was registered.
	Event string `json:"event"`
	Hook  string `json:"hook"`
	// Where says where the hook ran: box, host, http or server.
	Where     string `json:"where"`
	ToolUseID string `json:"tool_use_id,omitempty"`
	// MessageSeq is the sequence number of the message.user event that the hook ran for.
	MessageSeq int64 `json:"message_seq,omitempty"`
	// Call is the permanent id of the run: after a crash the server finds by it that the
	// hook has run. For a hook in a box it is also the id of the call to boxd.
	Call CallID `json:"call_id,omitempty"`
	// Outcome is how the hook's run ended: ok, blocked, failed, timeout or refused.
	Outcome  string `json:"outcome"`
	ExitCode *int   `json:"exit_code,omitempty"`
	// Message is the hook's message for the user; Reason says why the hook blocked the event or failed.
	Message    string  `json:"message,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	// Decision is the hook's decision on the tool call: allow, ask or deny; empty if it
	// made none.
	Decision string `json:"decision,omitempty"`
	// Input is the input by which the hook replaced the tool's input, Output the result by which it replaced the tool's
	// result. Absent: the hook replaced nothing.
	Input  json.RawMessage `json:"input,omitempty"`
	Output *string         `json:"output,omitempty"`
	// Context holds texts that the hook adds to the conversation for the model.
	Context []string `json:"context,omitempty"`
	// Rules are changes that the hook made to the session's permission rules.
	Rules        []RuleChange      `json:"rules,omitempty"`
	Notification *HookNotification `json:"notification,omitempty"`
}

// HookNotification is a message of a hook to the user. Level is info, warning, error or
// debug.
type HookNotification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Level string `json:"level"`
}

// RulesChanged is the payload of rules.changed: changes of the permission rules that were added to the
// session or to its workspace. The changes apply to all later calls.
type RulesChanged struct {
	// By says who changed the rules: an approval's id, hook, policy, or a person.
	By      string       `json:"by"`
	Changes []RuleChange `json:"changes"`
}

// Rule is a permission rule that was added to a session or to its workspace.
type Rule struct {
	Scope ApprovalScope `json:"scope"`
	// Behavior is allow, ask, deny or grant, as in RuleChange.
	Behavior string `json:"behavior"`
	Rule     string `json:"rule"`
	// By says who added the rule: an approval's id, hook or policy. Trust is the session's trust at that time.
	By      string    `json:"by"`
	Trust   Trust     `json:"trust"`
	AddedAt time.Time `json:"added_at"`
}

// RuleChange is one change of the permission rules of a session or workspace.
type RuleChange struct {
	Scope ApprovalScope `json:"scope"`
	// Behavior is the list that the rule belongs to: allow, ask, deny or grant. A grant
	// allows calls for which a person would otherwise be asked.
	Behavior string `json:"behavior"`
	Rule     string `json:"rule"`
	Removed  bool   `json:"removed,omitempty"`
}
