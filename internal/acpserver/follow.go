package acpserver

import (
	"context"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// begin runs work on a goroutine that the end of the connection waits for. It reports false if
// the connection has ended.
func (s *server) begin(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		return false
	}
	s.work.Go(work)
	return true
}

// start follows the log after the newest event that the editor has, unless it is followed
// already. The returned channel is closed when following ends.
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

// why returns the error that ended following the log.
func (o *session) why() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "acp", "the session's log is no longer followed: the editor closed the session, loaded it again or disconnected")
}

func (o *session) follow(after int64) {
	for ev, err := range o.s.cfg.API.Follow(o.ctx, o.id, after) {
		if err != nil {
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
			if o.ctx.Err() == nil {
				o.s.cfg.Log.Warn("the session's log can no longer be followed; the next prompt tries again", "session_id", o.id, "error", err)
				o.fail(err)
			}
			return
		}
		o.take(ev)
	}
}

// take sends the editor the updates for an event, then acts on it.
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

// known reports whether the editor needs no update for an event of its own prompt's turn: it
// wrote the message itself, and the prompt's answer reports the end of the turn.
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

// tell sends an update to the editor. If sending fails, the editor is gone, and the connection ends by itself.
func (o *session) tell(u acp.SessionUpdate, seq int64) {
	n := acp.SessionNotification{SessionId: acp.SessionId(o.id), Update: u}
	if seq > 0 {
		n.Meta = map[string]any{"holdfast": map[string]any{"seq": seq}}
	}
	if err := o.s.peer.Notify(o.ctx, acp.ClientMethodSessionUpdate, n); err != nil && o.ctx.Err() == nil {
		o.s.cfg.Log.Warn("an event was not sent to the editor", "session_id", o.id, "seq", seq, "error", err)
	}
}

// settle waits until the server has confirmed the turn of every message that is being sent, so that
// it is known which turns the editor started.
func (o *session) settle() {
	o.mu.Lock()
	sending := o.sending
	o.mu.Unlock()
	select {
	case <-sending:
	case <-o.ctx.Done():
	}
}

// interrupt ends a turn if it is the running one. While the server is unavailable, it tries
// again for a minute.
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
		o.s.cfg.Log.Warn("the turn was not interrupted", "session_id", o.id, "turn_id", turn, "error", err)
	}
}

// persist repeats do for a minute while the server is unavailable.
func persist(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	wait := 100 * time.Millisecond
	for {
		err := do()
		if !holdfast.IsKind(err, holdfast.KindUnavailable) {
			return err
		}
		if clock.Pause(ctx, wait) != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}
