package acpserver

import (
	"context"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// begin runs something that ends with the connection; false when that is over.
func (s *server) begin(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		return false
	}
	s.work.Go(work)
	return true
}

// start follows the log from where the editor was told of it, unless somebody does.
// The channel is closed when that is over.
func (o *session) start() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone != nil {
		select {
		case <-o.gone:
		default:
			return o.gone
		}
	}
	gone, after := make(chan struct{}), o.last
	o.gone, o.err = gone, nil
	if !o.s.begin(func() {
		defer close(gone)
		o.follow(after)
	}) {
		close(gone)
	}
	return gone
}

// why is what ended the following.
func (o *session) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "acp", "the session was closed or loaded again")
}

func (o *session) follow(after int64) {
	for ev, err := range o.s.cfg.API.Follow(o.ctx, o.id, after) {
		if err != nil {
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
			if o.ctx.Err() == nil {
				o.s.cfg.Log.Warn("the session is not followed any more; the next prompt tries again", "session_id", o.id, "error", err)
				o.fail(err)
			}
			return
		}
		o.take(ev)
	}
}

// take tells the editor of an event, then acts on it.
func (o *session) take(ev holdfast.Event) {
	switch ev.Type {
	case holdfast.EventMessageUser, holdfast.EventTurnStarted:
		o.settle()
	}
	o.mu.Lock()
	updates := o.view.updates(ev)
	if o.ours[ev.Turn] && known(ev) {
		updates = nil
	}
	o.mu.Unlock()
	for _, u := range updates {
		o.tell(u, ev.Seq)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if ev.Seq > 0 {
		o.last = ev.Seq
	}
	switch ev.Type {
	case holdfast.EventTurnStarted:
		o.running = ev.Turn
		for _, p := range o.prompts {
			if p.turn == ev.Turn && p.cancelled {
				o.s.begin(func() { o.interrupt(o.ctx, ev.Turn) })
			}
		}
	case holdfast.EventApprovalAsked:
		var a holdfast.Approval
		if ev.Decode(&a) == nil {
			o.ask(a)
		}
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		var a holdfast.ApprovalAnswered
		if ev.Decode(&a) == nil {
			o.withdraw(a.ID)
		}
	}
	if ev.EndsTurn() {
		o.settled(ev)
	}
	if o.head > 0 && o.last >= o.head {
		o.head = 0
		close(o.until)
		for _, q := range o.asked {
			o.put(q)
		}
	}
}

// known reports whether the editor has an event of its own prompt's turn already:
// it made the message, and the prompt's answer tells how the turn ended.
func known(ev holdfast.Event) bool {
	step, err := conversation.Of(ev)
	if err != nil {
		return false
	}
	switch s := step.(type) {
	case *conversation.Message:
		return !s.Steer
	case *conversation.End:
		return true
	}
	return false
}

// tell sends an update. An editor that cannot be written to is gone, and its
// connection ends by itself.
func (o *session) tell(u acp.SessionUpdate, seq int64) {
	n := acp.SessionNotification{SessionId: acp.SessionId(o.id), Update: u}
	if seq > 0 {
		n.Meta = map[string]any{"holdfast": map[string]any{"seq": seq}}
	}
	if err := o.s.conn.SendNotification(o.ctx, acp.ClientMethodSessionUpdate, n); err != nil && o.ctx.Err() == nil {
		o.s.cfg.Log.Warn("the editor was not told of an event", "session_id", o.id, "seq", seq, "error", err)
	}
}

// settle waits until it is known whose turns the messages on their way became.
func (o *session) settle() {
	o.mu.Lock()
	sending := o.sending
	o.mu.Unlock()
	select {
	case <-sending:
	case <-o.ctx.Done():
	}
}

// interrupt ends a turn, if it is the one that runs. It is tried for as long as a
// server takes to come back.
func (o *session) interrupt(ctx context.Context, turn holdfast.TurnID) {
	err := persist(ctx, func() error {
		o.mu.Lock()
		runs := o.running == turn
		o.mu.Unlock()
		if !runs {
			return nil
		}
		_, err := o.s.cfg.API.Interrupt(ctx, o.id)
		return err
	})
	if err != nil && ctx.Err() == nil && !holdfast.IsKind(err, holdfast.KindConflict) && !holdfast.IsKind(err, holdfast.KindGone) {
		o.s.cfg.Log.Warn("the turn is not interrupted", "session_id", o.id, "turn_id", turn, "error", err)
	}
}

// persist tries for a minute what a server that comes back can do again.
func persist(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	pause := 100 * time.Millisecond
	for {
		err := do()
		if !holdfast.IsKind(err, holdfast.KindUnavailable) {
			return err
		}
		t := time.NewTimer(pause)
		pause = min(2*pause, 2*time.Second)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}
