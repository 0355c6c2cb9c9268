package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// hooking is what a turn has to do with hooks. What they did is recorded with the
// next record of the turn, ahead of it, so that a verdict and the hooks it came
// from are one transaction; a run that is in the log is never made again, and one
// in a box is held there until it is (HZ-4). A nil one has no hooks.
type hooking struct {
	hooks
	h *host

	mu sync.Mutex
	// answer is the newest message.assistant of the turn: with it the ids that a
	// model gives its tool uses are told apart.
	answer int64
	// known are runs of this turn, recorded or about to be.
	known map[holdfast.CallID]holdfast.HookRan
	// owed waits for the next record; said are texts that the runtime has not got.
	owed []journal.Draft
	said []string
	// held are the boxes that hold runs which are not recorded yet.
	held map[holdfast.CallID]*sandbox.Box
	// prompts are what hooks made of the messages of the turn.
	prompts map[int64]prompted
}

// prompted is a message as hooks left it.
type prompted struct {
	text    string
	blocked string
}

// prepareHooks gets a turn its hooks. What they did in it before is read from the log.
func (h *host) prepareHooks(ctx context.Context) error {
	if h.hooked() != nil {
		return nil
	}
	set, err := h.e.hooksOf(ctx, h.row)
	if err != nil || set.empty() {
		return err
	}
	k := &hooking{
		hooks: set, h: h, known: map[holdfast.CallID]holdfast.HookRan{}, held: map[holdfast.CallID]*sandbox.Box{},
		prompts: map[int64]prompted{},
	}
	for ev, err := range h.Log(ctx, max(h.r.messageSeq-1, 0)) {
		if err != nil {
			return err
		}
		if ev.Turn != h.r.id {
			continue
		}
		if err := k.learn(ev); err != nil {
			return err
		}
	}
	h.hooking.Store(k)
	return nil
}

// learn takes in an event of the turn that is in the log.
func (k *hooking) learn(ev holdfast.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch ev.Type {
	case holdfast.EventMessageAssistant:
		k.answer = ev.Seq
	case holdfast.EventHookRan:
		var ran holdfast.HookRan
		if err := ev.Decode(&ran); err != nil {
			return err
		}
		if ran.Call != "" {
			k.known[ran.Call] = ran
			if box := k.held[ran.Call]; box != nil {
				delete(k.held, ran.Call)
				box.Release(ran.Call)
			}
		}
	}
	return nil
}

// Fire implements runtime.Hooks.
func (k *hooking) Fire(ctx context.Context, in hook.Input) hook.Result {
	if k == nil || !k.has(in.Event) || k.h.usable() != nil {
		return hook.Result{}
	}
	if in.Key == "" {
		k.mu.Lock()
		in.Key = "a" + strconv.FormatInt(k.answer, 10)
		k.mu.Unlock()
	}
	in = k.h.e.about(ctx, k.h.row, in)
	in.Mode = *k.h.mode.Load()
	in.Turn = k.h.r.id
	at := k.h.e.cfg.Hooks.Places
	at.Now = k.h.e.cfg.Clock
	at.Box = &boxRunner{box: k.h.Box, began: k.hold}
	at.Known = k.recall
	res := k.run(ctx, in, at, func(whose string, h *hook.Hook) holdfast.CallID {
		k.h.alive()
		return hookCall(k.h.r.id, whose, in, h)
	})
	k.h.alive()
	k.note(in, res)
	k.bring(ctx, in, res)
	return res
}

// Waits implements runtime.Hooks.
func (k *hooking) Waits(in hook.Input) bool {
	return k != nil && (len(k.server.Hooks(in)) > 0 || len(k.agent.Hooks(in)) > 0)
}

// bring takes in what hooks want changed of the rules: it is recorded with their
// runs. Before a tool call that belongs to the verdict.
func (k *hooking) bring(ctx context.Context, in hook.Input, res hook.Result) {
	if in.Event == hook.PreToolUse || in.Event == hook.PermissionRequest {
		return
	}
	i := slices.IndexFunc(res.Runs, func(r hook.Ran) bool { return !r.Known })
	if i < 0 {
		return
	}
	if err := k.h.bring(ctx, hookUse(res.Runs[i].Call), updatesOf(byHook, res.Updates)); err != nil {
		k.h.e.cfg.Log.WarnContext(ctx, "what a hook changes of the rules is lost", "session_id", k.h.u.id, "error", err)
	}
}

// hookUse stands for a hook's run where a tool use could.
func hookUse(call holdfast.CallID) string { return "hook " + string(call) }

func (k *hooking) hold(call holdfast.CallID, box *sandbox.Box) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[call] = box
}

func (k *hooking) recall(call holdfast.CallID) (holdfast.HookRan, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ran, ok := k.known[call]
	return ran, ok
}

// note puts what was run into the next record.
func (k *hooking) note(in hook.Input, res hook.Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range res.Runs {
		ran := &res.Runs[i].HookRan
		if res.Runs[i].Known {
			continue
		}
		if seq, ok := strings.CutPrefix(in.Key, "m"); ok {
			ran.MessageSeq, _ = strconv.ParseInt(seq, 10, 64)
		}
		k.known[ran.Call] = *ran
		k.owed = append(k.owed, drafts(*ran)...)
	}
	if in.Event != hook.UserPromptSubmit {
		k.said = append(k.said, res.Context...)
	}
}

// Said implements runtime.Hooks.
func (k *hooking) Said() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	said := k.said
	k.said = nil
	return said
}

// take gives what is owed to a record; owe gives it back when that failed.
func (k *hooking) take() []journal.Draft {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	owed := k.owed
	k.owed = nil
	for i := range owed {
		owed[i].Turn = k.h.r.id
	}
	return owed
}

func (k *hooking) owe(owed []journal.Draft) {
	if k == nil || len(owed) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owed = append(owed, k.owed...)
}

// recorded takes in what was committed.
func (k *hooking) recorded(events []holdfast.Event) {
	if k == nil {
		return
	}
	for _, ev := range events {
		if err := k.learn(ev); err != nil {
			k.h.e.cfg.Log.WarnContext(k.h.r.ctx, "a recorded event does not decode", "session_id", k.h.u.id, "error", err)
		}
		k.notify(ev)
	}
}

// notify tells the hooks of a notice, or that a person is asked; not of what a hook
// wanted to be told itself.
func (k *hooking) notify(ev holdfast.Event) {
	if !k.has(hook.Notify) {
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
	k.h.e.tell(k.h.u.id, in)
}

// flush records what is owed.
func (k *hooking) flush(ctx context.Context) error {
	k.mu.Lock()
	none := len(k.owed) == 0
	k.mu.Unlock()
	if none {
		return nil
	}
	_, err := k.h.Keep(ctx, nil)
	return err
}

// release forgets runs that were never recorded: the turn has ended.
func (k *hooking) release() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for call, box := range k.held {
		box.Release(call)
	}
	clear(k.held)
}

// begin fires what comes before the runtime: sessionStart in the first turn, and
// userPromptSubmit for the message that began this one. It is in the log before
// the runtime reads it. A message that a hook refused is denied.
func (k *hooking) begin(ctx context.Context) error {
	if k == nil {
		return nil
	}
	if k.h.r.number == 1 {
		k.Fire(ctx, hook.Input{Event: hook.SessionStart, Trigger: "startup", Key: "start"})
	}
	var refused string
	if k.has(hook.UserPromptSubmit) {
		for ev, err := range k.h.Log(ctx, max(k.h.r.messageSeq-1, 0)) {
			if err != nil {
				return err
			}
			if ev.Type != holdfast.EventMessageUser || ev.Agent != "" || ev.Turn != k.h.r.id {
				continue
			}
			p, err := k.prompt(ctx, ev)
			if err != nil {
				return err
			}
			refused = p.blocked
			break
		}
	}
	if err := k.flush(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	// The runtime reads from the log what they said so far.
	k.Said()
	if refused != "" {
		return holdfast.Errorf(holdfast.KindDenied, "turn", "a hook refused the message: %s", refused)
	}
	return nil
}

// prompt is what hooks make of a message of the user.
func (k *hooking) prompt(ctx context.Context, ev holdfast.Event) (prompted, error) {
	k.mu.Lock()
	p, done := k.prompts[ev.Seq]
	k.mu.Unlock()
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
	res := k.Fire(ctx, hook.Input{Event: hook.UserPromptSubmit, Prompt: m.Text(), Trigger: trigger, Key: "m" + strconv.FormatInt(ev.Seq, 10)})
	p.text = m.Text()
	for _, ran := range res.Runs {
		p.text = hook.Prompted(p.text, ran.HookRan)
	}
	if res.Blocked() {
		p.blocked = res.Decision().Reason
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.prompts[ev.Seq] = p
	return p, nil
}

// steered are messages that joined the turn, as hooks left them.
func (k *hooking) steered(ctx context.Context, events []holdfast.Event) ([]holdfast.Event, error) {
	if k == nil || !k.has(hook.UserPromptSubmit) {
		return events, nil
	}
	for i, ev := range events {
		p, err := k.prompt(ctx, ev)
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

// hookCall names a run for good: by the turn, what it is about, and the hook. Its
// version tells it from the ids of tool calls.
func hookCall(turn holdfast.TurnID, whose string, in hook.Input, h *hook.Hook) holdfast.CallID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %d %q", turn, in.Key, in.Event, in.ToolUseID, in.FilePath, whose, h.Order(), h.Name()))
	mark := turnMark(turn)
	id := append(mark[:6:6], sum[:10]...)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	s := hex.EncodeToString(id)
	return holdfast.CallID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}

func turnMark(turn holdfast.TurnID) [32]byte { return sha256.Sum256([]byte("turn " + turn)) }

// hookOf reports whether a call is a hook's run, and if so, one of that turn.
func hookOf(call holdfast.CallID, turn holdfast.TurnID) (isHook, ofTurn bool) {
	if len(call) != 36 || call[14] != '8' {
		return false, false
	}
	mark := turnMark(turn)
	s := hex.EncodeToString(mark[:6])
	return true, turn != "" && string(call[:13]) == s[:8]+"-"+s[8:]
}

// preToolUse asks the hooks before a tool call.
func (k *hooking) preToolUse(ctx context.Context, req policy.Request) policy.Decision {
	if k == nil {
		return policy.Decision{}
	}
	return k.Fire(ctx, toolInput(hook.PreToolUse, req)).Decision()
}

// denied tells the hooks of a denial.
func (k *hooking) denied(ctx context.Context, req policy.Request, d policy.Decision) {
	if k == nil {
		return
	}
	in := toolInput(hook.PermissionDenied, req)
	in.Error = d.Reason
	k.Fire(ctx, in)
}

// requester asks the hooks before a person is asked: what they allow or deny is
// the answer.
type requester struct {
	k *hooking
	// next asks the person; nil is nobody.
	next policy.Approver
	// said takes what they want changed, beside what others want.
	said *[]policy.Update
}

// Approve implements policy.Approver.
func (r requester) Approve(ctx context.Context, req policy.Request, asked policy.Decision) (policy.Decision, error) {
	in := toolInput(hook.PermissionRequest, req)
	in.PermissionSuggestions, in.Message = asked.Updates, asked.Reason
	d := r.k.Fire(ctx, in).Decision()
	*r.said = append((*r.said)[:len(*r.said):len(*r.said)], d.Updates...)
	d.Updates = nil
	switch {
	case ctx.Err() != nil:
		return policy.Decision{}, context.Cause(ctx)
	case d.Verdict == policy.Allowed || d.Verdict == policy.Denied:
		return d, nil
	case r.next == nil:
		return policy.Deny(asked.Reason + ", and nobody can be asked"), nil
	}
	return r.next.Approve(ctx, req, asked)
}

func toolInput(e hook.Event, req policy.Request) hook.Input {
	return hook.Input{Event: e, ToolName: req.Tool, ToolInput: req.Input, ToolUseID: req.CallID, AgentID: req.Agent}
}

// stop tells the hooks how the turn ended.
func (k *hooking) stop(to holdfast.TurnStatus, end holdfast.TurnEnded) {
	if k == nil || !k.has(hook.Stop) {
		return
	}
	k.h.e.tell(k.h.u.id, hook.Input{
		Event: hook.Stop, Turn: k.h.r.id, Trigger: string(to), LastAssistantMessage: end.Result, Error: end.Message,
		IsInterrupt: to == holdfast.TurnInterrupted,
	})
}
