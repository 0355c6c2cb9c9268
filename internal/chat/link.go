package chat

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// link carries out the effects that need the server, with two clients: the client calls gives up at
// once, because the link itself repeats messages and reports that they wait; the client stream
// follows the log however long the server is away.
type link struct {
	ctx           context.Context
	calls, stream *client.Client
	post          func(Input)
	newKey        func() (string, error)
	id            holdfast.SessionID // the session that the first message created, if there is one
	firstKey      string             // idempotency key of the session's creation, if the user gave one
	person        bool
	remember      func(holdfast.SessionID)
	unfollow      context.CancelFunc // ends the stream of the session that is followed

	messages chan Message
}

// start starts the goroutine that sends messages, in order.
func (l *link) start() {
	l.messages, l.unfollow = make(chan Message, outboxMost+1), func() {}
	go l.send()
}

// do starts to carry out an effect in the background, and does not wait for it.
func (l *link) do(e Effect) {
	switch e := e.(type) {
	case Message:
		l.messages <- e
	case Call:
		go func() {
			ctx, cancel := context.WithTimeout(l.ctx, e.Limit)
			defer cancel()
			l.post(e.Do(ctx, l.calls))
		}()
	case Follow:
		l.unfollow()
		ctx, stop := context.WithCancel(l.ctx)
		l.unfollow = stop
		go l.follow(ctx, e)
	case Remember:
		l.remember(e.ID)
	}
}

// follow posts the events of the log to the conversation, until ctx ends. Events that arrive after the
// conversation switched to another session are dropped.
func (l *link) follow(ctx context.Context, f Follow) {
	for ev, err := range l.stream.Follow(ctx, f.ID, f.After) {
		if ctx.Err() != nil {
			return
		}
		l.post(func(t *Talk) []Effect {
			switch {
			case t.Session.ID != f.ID:
				return nil
			case err != nil:
				return t.Lost(err)
			}
			return t.Event(ev)
		})
	}
}

// linked tells the conversation that the client waits for the server, or that the server answers again.
func (l *link) linked(w client.Wait) { l.post(func(t *Talk) []Effect { return t.Linked(w) }) }

// send sends the queued messages in order.
func (l *link) send() {
	for {
		select {
		case m := <-l.messages:
			l.one(m)
		case <-l.ctx.Done():
			return
		}
	}
}

// one sends a message, after it created the session if there is none. While the server is away or full, it repeats the
// message with the same key, so that it arrives once. It repeats the creation only if a person types.
func (l *link) one(m Message) {
	tell := func(s Sent) { l.post(func(t *Talk) []Effect { return t.Confirmed(s) }) }
	if m.Create != nil && l.id == "" {
		key, err := l.firstKey, error(nil)
		if key == "" {
			key, err = l.newKey()
		}
		var made holdfast.Session
		if err == nil {
			err = l.patiently(m.Text, l.person, func() (err error) {
				made, err = l.calls.CreateSession(l.ctx, *m.Create, key)
				return err
			})
		}
		if err != nil {
			if l.ctx.Err() == nil {
				tell(Sent{Text: m.Text, Err: err})
			}
			return
		}
		l.id = made.ID
		tell(Sent{Text: m.Text, Created: &made})
	}
	key, err := l.newKey()
	var s holdfast.Sent
	if err == nil {
		err = l.patiently(m.Text, true, func() (err error) {
			s, err = l.calls.Send(l.ctx, cmp.Or(m.Session, l.id), holdfast.SendMessage{Text: m.Text, Key: key})
			return err
		})
	}
	if l.ctx.Err() == nil {
		tell(Sent{Text: m.Text, Turn: s.Turn.ID, Err: err})
	}
}

// patiently repeats try while the server is unavailable, if again is set, and tells the
// conversation once that the message waits.
func (l *link) patiently(text string, again bool, try func() error) error {
	for told := false; ; told = true {
		err := try()
		if !again || !holdfast.IsKind(err, holdfast.KindUnavailable) || l.ctx.Err() != nil {
			return err
		}
		if !told {
			l.post(func(t *Talk) []Effect { return t.Confirmed(Sent{Text: text, Held: err}) })
		}
		if clock.Pause(l.ctx, max(300*time.Millisecond, client.RetryAfter(err))) != nil {
			return err
		}
	}
}
