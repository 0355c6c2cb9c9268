package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
)

// prompt is a message of the editor that waits for the end of its turn. The session's lock
// guards it.
type prompt struct {
	turn      holdfast.TurnID
	cancelled bool
	// done receives the end of the turn, or the error because of which there is none.
	done chan result
}

type result struct {
	end    holdfast.TurnEnded
	status holdfast.TurnStatus
	err    error
}

// prompt registers the message of session/prompt, and returns the work that sends it and waits
// for the end of its turn.
func (s *server) prompt(params json.RawMessage) jsonrpc.Work {
	var req acp.PromptRequest
	o, p, text, err := s.admit(params, &req)
	return func(ctx context.Context) (any, error) {
		if err != nil {
			return nil, refusal(err)
		}
		defer o.leave(p)
		return o.prompt(ctx, p, text, req.MessageId)
	}
}

// prompt sends a registered message and waits for the end of its turn.
func (o *session) prompt(ctx context.Context, p *prompt, text string, id *string) (any, error) {
	o.greet()
	gone := o.start()
	o.untilLent(ctx)
	if err := o.send(ctx, p, text, id); err != nil {
		return nil, refusal(err)
	}
	select {
	case r := <-p.done:
		return r.response(id)
	case <-gone:
		select {
		case r := <-p.done:
			return r.response(id)
		default:
		}
		return nil, refusal(goesOn(o.why(), o.id))
	case <-ctx.Done():
		// The editor cancelled the request, or is gone; if it is gone, the turn goes on.
		cause := context.Cause(ctx)
		if errors.Is(cause, jsonrpc.ErrCancelled) && o.giveUp(p) != "" {
			o.s.begin(func() { o.interrupt(o.ctx, p.turn) })
		}
		return nil, cause
	}
}

// goesOn adds to an "unavailable" error the hint that the prompt is accepted and its turn goes on.
func goesOn(err error, id holdfast.SessionID) error {
	if !holdfast.IsKind(err, holdfast.KindUnavailable) {
		return err
	}
	return (&holdfast.Error{Kind: holdfast.KindUnavailable, Msg: err.Error(), Err: err}).
		WithHint("the message is accepted and its turn goes on with the server; load the session again to see it, or: holdfast session events %s --follow", id)
}

// admit registers a prompt, so that a later cancel finds it.
func (s *server) admit(params json.RawMessage, req *acp.PromptRequest) (*session, *prompt, string, error) {
	if err := decode(params, req); err != nil {
		return nil, nil, "", err
	}
	o, err := s.find(req.SessionId)
	if err != nil {
		return nil, nil, "", err
	}
	text, err := promptText(req.Prompt)
	if err != nil {
		return nil, nil, "", err
	}
	p := &prompt{done: make(chan result, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.prompts = append(o.prompts, p)
	if o.inFlight++; o.inFlight == 1 {
		o.sending = make(chan struct{})
	}
	return o, p, text, nil
}

// leave removes a prompt from the prompts whose turns have not ended.
func (o *session) leave(p *prompt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.prompts = slices.DeleteFunc(o.prompts, func(q *prompt) bool { return q == p })
}

// greet sends the editor's user, once, the text that says in which directory the agent works.
func (o *session) greet() {
	o.mu.Lock()
	text := o.first.hello
	o.first.hello = ""
	o.mu.Unlock()
	if text != "" {
		o.tell(acp.SessionUpdate{AgentMessageChunk: &acp.SessionUpdateAgentMessageChunk{Meta: meta(), Content: acp.TextBlock("[holdfast] " + text + "\n\n")}}, 0)
	}
}

// send sends the message as a turn. The editor's message id, if it has at most 100 bytes, becomes the idempotency key,
// so that a message that is sent again makes no second turn.
func (o *session) send(ctx context.Context, p *prompt, text string, id *string) error {
	var sent holdfast.Sent
	key, err := o.s.cfg.NewKey()
	if id != nil && *id != "" && len(*id) <= 100 {
		key = "acp-" + *id
	}
	if err == nil {
		sent, err = o.s.cfg.API.Send(ctx, o.id, holdfast.SendMessage{Text: text, Key: key})
	}
	o.mu.Lock()
	if p.turn = sent.Turn.ID; err == nil {
		o.ours[p.turn] = true
	}
	if ev, ok := o.ended[p.turn]; ok && err == nil {
		p.over(ev)
	}
	if o.inFlight--; o.inFlight == 0 {
		clear(o.ended)
		close(o.sending)
	}
	stop := p.cancelled && o.running == p.turn
	o.mu.Unlock()
	if err != nil {
		return err
	}
	if stop {
		o.s.begin(func() { o.interrupt(o.ctx, p.turn) })
	}
	if !sent.Duplicate {
		return nil
	}
	// The message is a duplicate: the events of its turn may be past.
	turn, err := o.s.cfg.API.Turn(ctx, o.id, p.turn)
	if err == nil && turn.Status.Terminal() {
		r := result{status: turn.Status, end: holdfast.TurnEnded{StopReason: turn.StopReason, Message: turn.Error}}
		if turn.Usage != nil {
			r.end.Usage = *turn.Usage
		}
		p.settle(r)
	}
	return goesOn(err, o.id)
}

// over gives a waiting prompt its result, from the last event of its turn.
func (p *prompt) over(ev holdfast.Event) {
	r := result{status: holdfast.TurnCompleted}
	switch ev.Type {
	case holdfast.EventTurnFailed:
		r.status = holdfast.TurnFailed
	case holdfast.EventTurnInterrupted:
		r.status = holdfast.TurnInterrupted
	}
	// The turn has ended even if the event does not decode.
	_ = ev.Decode(&r.end)
	p.settle(r)
}

func (p *prompt) settle(r result) {
	select {
	case p.done <- r:
	default: // the prompt has its result already
	}
}

// settled gives the prompts that wait for a turn their result, from the event that ends the turn. o.mu is held.
func (o *session) settled(ev holdfast.Event) {
	if o.running == ev.Turn {
		o.running = ""
	}
	for _, p := range o.prompts {
		if p.turn == ev.Turn {
			p.over(ev)
		}
	}
	if o.inFlight > 0 {
		o.ended[ev.Turn] = ev
	}
	delete(o.ours, ev.Turn)
}

// fail ends every waiting prompt with an error.
func (o *session) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.prompts {
		p.settle(result{err: err})
	}
}

// giveUp marks prompts as cancelled, all of them if none is named, and returns the turn to
// interrupt if one of their turns runs.
func (o *session) giveUp(these ...*prompt) holdfast.TurnID {
	o.mu.Lock()
	defer o.mu.Unlock()
	var turn holdfast.TurnID
	for _, p := range o.prompts {
		if len(these) > 0 && !slices.Contains(these, p) {
			continue
		}
		p.cancelled = true
		if p.turn != "" && p.turn == o.running {
			turn = p.turn
		}
	}
	return turn
}

// cancelSession cancels all prompts of a session for the editor, and interrupts their turn if it runs.
func (s *server) cancelSession(params json.RawMessage) {
	var req acp.CancelNotification
	err := decode(params, &req)
	var o *session
	if err == nil {
		o, err = s.find(req.SessionId)
	}
	if err != nil {
		s.cfg.Log.Warn("the editor's cancellation names no open session", "error", err)
		return
	}
	if turn := o.giveUp(); turn != "" {
		s.begin(func() { o.interrupt(o.ctx, turn) })
	}
}

// response returns the answer to session/prompt for the end of its turn.
func (r result) response(id *string) (any, error) {
	switch {
	case r.err != nil:
		return nil, refusal(r.err)
	case r.status == holdfast.TurnFailed:
		kind := r.end.Kind
		if kind == "" {
			kind = holdfast.KindInternal
		}
		// Use the code of an internal error, not of an invalid request: the editor's request was valid, but its turn
		// failed.
		return nil, coded(jsonrpc.InternalError, &holdfast.Error{Kind: kind, Msg: "the turn failed: " + clip.Middle(r.end.Message, maxChunk), Hint: r.end.Hint})
	}
	res := acp.PromptResponse{StopReason: stopReason(r), UserMessageId: id}
	if u := r.end.Usage; u != (holdfast.Usage{}) {
		read, write := int(u.CacheReadTokens), int(u.CacheWriteTokens)
		res.Usage = &acp.Usage{
			InputTokens: int(u.InputTokens), OutputTokens: int(u.OutputTokens),
			CachedReadTokens: &read, CachedWriteTokens: &write, TotalTokens: int(u.Tokens()),
		}
	}
	return res, nil
}

func stopReason(r result) acp.StopReason {
	if r.status == holdfast.TurnInterrupted {
		return acp.StopReasonCancelled
	}
	switch r.end.StopReason {
	case "max_tokens", "model_context_window_exceeded":
		return acp.StopReasonMaxTokens
	case "refusal":
		return acp.StopReasonRefusal
	case "max_turns", "max_steps", "error_max_turns":
		return acp.StopReasonMaxTurnRequests
	}
	return acp.StopReasonEndTurn
}
