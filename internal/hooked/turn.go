package hooked

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pending"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// TurnConfig configures the hooks of a turn. All fields must be set.
type TurnConfig struct {
	Row    journal.Row
	ID     holdfast.TurnID
	Number int64
	// After is the sequence number before the turn's first event.
	After int64
	// Facts receives the runs, which the turn's next change records.
	Facts *pending.Facts
	// Alive is called when a hook begins or ends. It returns an error once the turn is over: then no
	// more hooks run.
	Alive func() error
	// Mode returns the session's current permission mode.
	Mode func() holdfast.Mode
	// Box returns the turn's box and starts it if necessary.
	Box func(ctx context.Context) (*sandbox.Box, error)
	// Log reads the session's events after a sequence number.
	Log func(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	// Updated makes permission updates that a hook asks for effective, and returns the fact that
	// records them; nil for none.
	Updated func(ctx context.Context, updates []policy.Update) (*pending.Fact, error)
	// Fail ends the turn with an error. It does not wait for the turn's end.
	Fail func(error)
	// Flush commits the pending facts.
	Flush func(ctx context.Context) error
}

// Turn runs the hooks of one turn. The runs go to the turn's Facts, so that a verdict and the hook
// runs behind it are committed in one transaction. A nil Turn has no hooks. Safe for concurrent
// use.
type Turn struct {
	hooks *Hooks
	set   set
	cfg   TurnConfig

	mu sync.Mutex
	// answer is the sequence number of the turn's newest message.assistant. It makes hook runs unique
	// if a model uses the same tool use id in several answers.
	answer int64
	// known are the runs of this turn by call id, recorded or pending.
	known map[holdfast.CallID]holdfast.HookRan
	// said are texts of hooks for the model that the runtime has not fetched yet.
	said []string
	// held maps runs that are not recorded yet to the boxes that hold their results.
	held map[holdfast.CallID]*sandbox.Box
	// prompts caches, by sequence number, the turn's user messages as hooks changed them.
	prompts map[int64]prompted
}

// prompted is a user message after the hooks: its text, and in blocked the reason if a hook refused
// it.
type prompted struct {
	text    string
	blocked string
}

// Turn returns the hooks of a turn, or nil if there are none. The turn's hook runs from before a
// restart are read from the log.
func (h *Hooks) Turn(ctx context.Context, cfg TurnConfig) (*Turn, error) {
	set, err := h.of(ctx, cfg.Row)
	if err != nil || set.empty() {
		return nil, err
	}
	t := &Turn{
		hooks: h, set: set, cfg: cfg, known: map[holdfast.CallID]holdfast.HookRan{}, held: map[holdfast.CallID]*sandbox.Box{},
		prompts: map[int64]prompted{},
	}
	for ev, err := range cfg.Log(ctx, cfg.After) {
		if err != nil {
			return nil, err
		}
		if ev.Turn != cfg.ID {
			continue
		}
		if err := t.learn(ev); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// learn updates the turn's state from an event that is in the log. The box may then forget the run
// that it records.
func (t *Turn) learn(ev holdfast.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch ev.Type {
	case holdfast.EventMessageAssistant:
		t.answer = ev.Seq
	case holdfast.EventHookRan:
		var ran holdfast.HookRan
		if err := ev.Decode(&ran); err != nil {
			return err
		}
		if ran.Call != "" {
			t.known[ran.Call] = ran
			if box := t.held[ran.Call]; box != nil {
				delete(t.held, ran.Call)
				box.Release(ran.Call)
			}
		}
	}
	return nil
}

// Has reports whether there are hooks for an event.
func (t *Turn) Has(e hook.Event) bool { return t != nil && t.set.has(e) }

// Fire implements hook.Turn.
func (t *Turn) Fire(ctx context.Context, in hook.Input) hook.Result {
	if t == nil || !t.set.has(in.Event) || t.cfg.Alive() != nil {
		return hook.Result{}
	}
	if in.Key == "" {
		t.mu.Lock()
		in.Key = "a" + strconv.FormatInt(t.answer, 10)
		t.mu.Unlock()
	}
	in = t.hooks.about(ctx, t.cfg.Row, in)
	in.Mode = t.cfg.Mode()
	in.Turn = t.cfg.ID
	at := t.hooks.places(&boxRunner{box: t.cfg.Box, began: t.hold})
	at.Known = t.recall
	res := t.set.run(ctx, in, at, func(whose string, h *hook.Hook) holdfast.CallID {
		_ = t.cfg.Alive()
		return nameOf(t.cfg.ID, whose, in, h)
	})
	_ = t.cfg.Alive()
	t.note(ctx, in, res)
	return res
}

// Waits implements hook.Turn.
func (t *Turn) Waits(in hook.Input) bool {
	return t != nil && (len(t.set.server.Hooks(in)) > 0 || len(t.set.agent.Hooks(in)) > 0)
}

func (t *Turn) hold(call holdfast.CallID, box *sandbox.Box) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[call] = box
}

func (t *Turn) recall(call holdfast.CallID) (holdfast.HookRan, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ran, ok := t.known[call]
	return ran, ok
}

// note turns new hook runs for an event into a pending fact, together with the permission updates
// that they ask for. Before a tool call, the updates are recorded with the verdict instead. If the
// updates cannot be made, it records nothing and ends the turn, so that no call runs without a rule
// that a hook asked for.
func (t *Turn) note(ctx context.Context, in hook.Input, res hook.Result) {
	fact := &pending.Fact{}
	if in.Event != hook.PreToolUse && in.Event != hook.PermissionRequest && slices.ContainsFunc(res.Runs, func(r hook.Ran) bool { return !r.Known }) {
		switch updated, err := t.cfg.Updated(ctx, res.Updates); {
		case err != nil:
			t.cfg.Fail(holdfast.Errorf(holdfast.KindOf(err), "hook", "the permission rules that a hook for %s asked for cannot be stored: %w", in.Event, err))
			return
		case updated != nil:
			fact = updated
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range res.Runs {
		ran := &res.Runs[i].HookRan
		if res.Runs[i].Known {
			continue
		}
		if seq, ok := strings.CutPrefix(in.Key, "m"); ok {
			ran.MessageSeq, _ = strconv.ParseInt(seq, 10, 64)
		}
		t.known[ran.Call] = *ran
		for _, d := range drafts(*ran) {
			d.Turn = t.cfg.ID
			fact.Before = append(fact.Before, d)
		}
	}
	if len(fact.Before) > 0 {
		t.cfg.Facts.Add(fact)
	}
	if in.Event != hook.UserPromptSubmit {
		t.said = append(t.said, res.Context...)
	}
}

// Said implements hook.Turn.
func (t *Turn) Said() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.said
	t.said = nil
	return said
}

// Recorded updates the turn's hooks from events that were committed, and runs the hooks for notices
// and questions among them.
func (t *Turn) Recorded(ctx context.Context, events []holdfast.Event) {
	if t == nil {
		return
	}
	for _, ev := range events {
		if err := t.learn(ev); err != nil {
			t.hooks.cfg.Log.WarnContext(ctx, "hooks ignored a recorded event that cannot be decoded", "session_id", t.cfg.Row.ID, "error", err)
		}
		t.notify(ev)
	}
}

// notify runs the Notify hooks for a notice or an approval question, in the background. A notice that a hook asked for
// runs none.
func (t *Turn) notify(ev holdfast.Event) {
	if !t.set.has(hook.Notify) {
		return
	}
	in := hook.Input{Event: hook.Notify, Turn: ev.Turn}
	switch ev.Type {
	case holdfast.EventNotice:
		var n holdfast.Notice
		if ev.Decode(&n) != nil || n.Code == noticeHook {
			return
		}
		in.Trigger, in.Message = n.Code, n.Text
	case holdfast.EventApprovalAsked:
		var a holdfast.Approval
		if ev.Decode(&a) != nil {
			return
		}
		in.Trigger, in.Message, in.ToolName, in.ToolInput, in.ToolUseID = "approval", a.Reason, a.Tool, a.Input, a.ToolUseID
	default:
		return
	}
	t.hooks.Tell(t.cfg.Row.ID, in)
}

// Begin runs the hooks that come before the runtime: sessionStart in the first turn, and
// userPromptSubmit for the message that began the turn. The runs are in the log before the runtime
// reads it. If a hook refused the message, Begin fails with denied.
func (t *Turn) Begin(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if t.cfg.Number == 1 {
		t.Fire(ctx, hook.Input{Event: hook.SessionStart, Trigger: "startup", Key: "start"})
	}
	var refused string
	if t.set.has(hook.UserPromptSubmit) {
		for ev, err := range t.cfg.Log(ctx, t.cfg.After) {
			if err != nil {
				return err
			}
			if ev.Type != holdfast.EventMessageUser || ev.Agent != "" || ev.Turn != t.cfg.ID {
				continue
			}
			p, err := t.prompt(ctx, ev)
			if err != nil {
				return err
			}
			refused = p.blocked
			break
		}
	}
	if t.cfg.Facts.Waiting() {
		if err := t.cfg.Flush(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	// Drop the hooks' texts from memory: the runtime reads them from the log.
	t.Said()
	if refused != "" {
		return holdfast.Errorf(holdfast.KindDenied, "turn", "a hook refused the message: %s", refused)
	}
	return nil
}

// prompt returns a user message as the hooks change it. The hooks run at the first call for the message. It fails if
// the turn is over.
func (t *Turn) prompt(ctx context.Context, ev holdfast.Event) (prompted, error) {
	t.mu.Lock()
	p, done := t.prompts[ev.Seq]
	t.mu.Unlock()
	if done {
		return p, nil
	}
	var m holdfast.UserMessage
	if err := ev.Decode(&m); err != nil {
		return prompted{}, err
	}
	trigger := ""
	if m.Steer {
		trigger = "steer"
	}
	res := t.Fire(ctx, hook.Input{Event: hook.UserPromptSubmit, Prompt: m.Text(), Trigger: trigger, Key: "m" + strconv.FormatInt(ev.Seq, 10)})
	if err := t.cfg.Alive(); err != nil {
		// Fire may have run no hooks, because the turn is over here.
		return prompted{}, err
	}
	p.text = m.Text()
	for _, ran := range res.Runs {
		p.text = hook.Prompted(p.text, ran.HookRan)
	}
	if res.Blocked() {
		p.blocked = res.Decision().Reason
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prompts[ev.Seq] = p
	return p, nil
}

// Steered returns messages that joined the turn, as the hooks change them.
func (t *Turn) Steered(ctx context.Context, events []holdfast.Event) ([]holdfast.Event, error) {
	if !t.Has(hook.UserPromptSubmit) {
		return events, nil
	}
	for i, ev := range events {
		p, err := t.prompt(ctx, ev)
		if err != nil {
			return nil, err
		}
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return nil, err
		}
		m.Parts = []holdfast.Part{{Type: holdfast.PartText, Text: p.text}}
		if events[i], err = ev.With(m); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// Withhold returns events that withhold messages of the user from the model, to be recorded with the
// end of a turn: the messages of the turn that no hook for userPromptSubmit has finished on, if there
// are such hooks or the hooks cannot be loaded. t is the Turn, nil if it was not loaded; log yields the
// turn's events.
func (h *Hooks) Withhold(ctx context.Context, row journal.Row, turn holdfast.TurnID, t *Turn, log iter.Seq2[holdfast.Event, error]) ([]journal.Draft, error) {
	record := holdfast.HookRan{
		Event: string(hook.UserPromptSubmit), Hook: "unknown", Where: string(hook.InProc), Outcome: hook.OutcomeRefused, Decision: "deny",
		Reason: "the message is withheld from the model, because the turn ended before this hook had finished",
	}
	if set, err := h.of(ctx, row); err != nil {
		record.Reason = "the message is withheld from the model, because the session's hooks cannot be loaded: " + journal.Plain(err.Error())
	} else {
		hooks := append(set.server.Hooks(hook.Input{Event: hook.UserPromptSubmit}), set.agent.Hooks(hook.Input{Event: hook.UserPromptSubmit})...)
		if len(hooks) == 0 {
			return nil, nil
		}
		record.Hook, record.Where = hooks[0].Name(), string(hooks[0].Where())
	}
	judged := t.judged()
	var messages []int64
	for ev, err := range log {
		if err != nil {
			return nil, err
		}
		var ran holdfast.HookRan
		switch {
		case ev.Turn != turn || ev.Agent != "":
		case ev.Type == holdfast.EventMessageUser:
			messages = append(messages, ev.Seq)
		case ev.Type == holdfast.EventHookRan && ev.Decode(&ran) == nil:
			judged[ran.MessageSeq] = true
		}
	}
	var out []journal.Draft
	for _, seq := range messages {
		if !judged[seq] {
			record.MessageSeq = seq
			out = append(out, journal.Draft{Type: holdfast.EventHookRan, Turn: turn, Data: record})
		}
	}
	return out, nil
}

// judged returns the numbers of the messages that hooks ran for, including runs that are not recorded yet.
func (t *Turn) judged() map[int64]bool {
	out := map[int64]bool{}
	if t == nil {
		return out
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ran := range t.known {
		out[ran.MessageSeq] = true
	}
	return out
}

// PreToolUse runs the hooks before a tool call and returns their decision.
func (t *Turn) PreToolUse(ctx context.Context, req policy.Request) policy.Decision {
	return t.Fire(ctx, toolInput(hook.PreToolUse, req)).Decision()
}

// Denied runs the hooks for a denied tool call.
func (t *Turn) Denied(ctx context.Context, req policy.Request, d policy.Decision) {
	in := toolInput(hook.PermissionDenied, req)
	in.Error = d.Reason
	t.Fire(ctx, in)
}

// Approver is a policy.Approver that runs the PermissionRequest hooks first: if they allow or deny
// the call, no person is asked.
type Approver struct {
	Turn *Turn
	// Next asks the person; nil where nobody can be asked.
	Next policy.Approver
	// Updates receives the permission updates that the hooks ask for.
	Updates *[]policy.Update
}

// Approve implements policy.Approver.
func (a Approver) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	in := toolInput(hook.PermissionRequest, req)
	in.PermissionSuggestions, in.Message = asked.Updates, asked.Reason
	d := a.Turn.Fire(ctx, in).Decision()
	*a.Updates = append((*a.Updates)[:len(*a.Updates):len(*a.Updates)], d.Updates...)
	d.Updates = nil
	switch {
	case ctx.Err() != nil:
		return policy.Decision{}, context.Cause(ctx)
	case d.Verdict == policy.Allowed || d.Verdict == policy.Denied:
		return d, nil
	case a.Next == nil:
		return policy.Deny(asked.Reason + ", and nobody can be asked"), nil
	}
	return a.Next.Approve(ctx, req, asked)
}

func toolInput(e hook.Event, req policy.Request) hook.Input {
	return hook.Input{Event: e, ToolName: req.Tool, ToolInput: req.Input, ToolUseID: req.CallID, AgentID: req.Agent}
}

// End lets boxes forget the runs that were never recorded, and runs the Stop hooks in the background. The caller has
// committed the turn's end.
func (t *Turn) End(to holdfast.TurnStatus, end holdfast.TurnEnded) {
	if t == nil {
		return
	}
	t.mu.Lock()
	for call, box := range t.held {
		box.Release(call)
	}
	clear(t.held)
	t.mu.Unlock()
	if t.set.has(hook.Stop) {
		t.hooks.Tell(t.cfg.Row.ID, hook.Input{
			Event: hook.Stop, Turn: t.cfg.ID, Trigger: string(to), LastAssistantMessage: end.Result, Error: end.Message,
			IsInterrupt: to == holdfast.TurnInterrupted,
		})
	}
}
