package chat

import (
	"cmp"
	"context"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// busy reports whether a turn runs, or a message is on its way to one.
func (t *Talk) busy() bool { return t.running != "" || !t.pending.none() }

// rewind moves the session back by a number of turns.
func rewind(t *Talk, arg string) []Effect {
	n, err := strconv.Atoi(cmp.Or(arg, "1"))
	if err != nil || n < 1 {
		return []Effect{say("/rewind goes back by one turn, /rewind 3 by three")}
	}
	if t.busy() {
		return []Effect{say("a turn runs: wait for its end, or press Ctrl-C, then /rewind")}
	}
	id := t.Session.ID
	return t.call(treeLimit, func(ctx context.Context, c *client.Client) Input {
		to, began, err := turnsBack(ctx, c, id, n)
		var done holdfast.RewoundSession
		var last []holdfast.TranscriptEntry
		if err == nil {
			done, err = c.Rewind(ctx, id, holdfast.RewindSession{To: to.ID})
		}
		if err == nil {
			last, _, err = c.Transcript(ctx, id, began, 0)
		}
		return func(t *Talk) []Effect {
			var out Show
			for _, e := range last {
				if kind, ok := map[holdfast.Role]plain.Kind{holdfast.RoleUser: plain.Own, holdfast.RoleAssistant: plain.Answer}[e.Role]; ok {
					out = append(out, plain.Line{Kind: kind, Text: plain.Prose(e.Text)}, plain.Line{Kind: plain.Break})
				}
			}
			if r := done.Rewound; done.Session.ID != "" {
				t.Session = done.Session
				t.live.settle(done.Session.LastSeq)
				out = append(out, say("turn %d is the last one now; files %s", to.Number, r.Files)...)
				if r.Kept != "" {
					out = append(out, say("to undo: holdfast session rewind %s --to %s", id, r.Kept)...)
				}
			}
			if err != nil {
				out = append(out, trouble(err)...)
			}
			return []Effect{out}
		}
	})
}

// turnsBack returns the newest checkpoint from before the last n turns of the conversation, and the number
// of the event after which the last turn before it began.
func turnsBack(ctx context.Context, c *client.Client, id holdfast.SessionID, n int) (to holdfast.Checkpoint, began int64, err error) {
	seen, number := -1, int64(-1)
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if err != nil {
			return to, 0, err
		}
		if cp.Abandoned || cp.Number == number {
			continue
		}
		switch seen, number = seen+1, cp.Number; seen {
		case n:
			to = cp
		case n + 1:
			return to, cp.Seq, nil
		}
	}
	if to.ID == "" {
		return to, 0, holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "there is no checkpoint %s back", plain.Count(n, "turn", "turns")).
			WithHint("holdfast session checkpoints %s", id)
	}
	return to, 0, nil
}

// fork makes a new session that continues from the newest checkpoint, and switches to it.
func fork(t *Talk, title string) []Effect {
	if t.busy() {
		return []Effect{say("a turn runs: wait for its end, or press Ctrl-C, then /fork")}
	}
	id := t.Session.ID
	return t.call(treeLimit, func(ctx context.Context, c *client.Client) Input {
		s, err := c.Fork(ctx, id, holdfast.ForkSession{Title: title}, "")
		return func(t *Talk) []Effect {
			switch {
			case err != nil:
				return []Effect{trouble(err)}
			case t.busy():
				return []Effect{say("forked, but your message goes to this session; the other one: holdfast chat %s", s.ID)}
			}
			t.Session, t.questions, t.recallAt = s, questions{}, 0
			t.live.settle(s.LastSeq)
			return []Effect{Remember{s.ID}, t.greeting(), Follow{s.ID, s.LastSeq}}
		}
	})
}
