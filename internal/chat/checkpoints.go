package chat

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/chat/back"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// busy reports whether a turn runs, or a message of this chat waits for the server or for its turn.
func (t *Talk) busy() bool { return t.running != "" || !t.pending.none() }

// rewind moves the session back by a number of turns.
func rewind(t *Talk, arg string) []Effect {
	count, files := strings.CutSuffix(arg, "--files")
	n, err := strconv.Atoi(cmp.Or(strings.TrimSpace(count), "1"))
	if err != nil || n < 1 {
		return []Effect{say("/rewind goes back by one turn, /rewind 3 by three; /rewind 3 --files takes back files of a directory of your own, too")}
	}
	req := holdfast.RewindSession{}
	if files {
		req.Files = "restore"
	}
	if t.busy() {
		return []Effect{say("a turn runs: wait for its end, or press Ctrl-C, then /rewind")}
	}
	id := t.Session.ID
	return t.call(treeLimit, func(ctx context.Context, c *client.Client) Input {
		to, began, err := back.Turns(ctx, c, id, n)
		var done holdfast.RewoundSession
		var last []holdfast.TranscriptEntry
		if err == nil {
			req.To = to.ID
			done, err = c.Rewind(ctx, id, req)
		}
		if err == nil {
			last, _, err = c.Transcript(ctx, id, began, 0)
		}
		return func(t *Talk) []Effect {
			var out Show
			for _, e := range last {
				if e.Seq > done.Rewound.Seq { // show the messages before this point; the rewind took back the later ones
					break
				}
				if kind, ok := map[holdfast.Role]plain.Kind{holdfast.RoleUser: plain.Own, holdfast.RoleAssistant: plain.Answer}[e.Role]; ok {
					out = append(out, plain.Line{Kind: kind, Text: plain.Prose(e.Text)}, plain.Line{Kind: plain.Break})
				}
			}
			if r := done.Rewound; done.Session.ID != "" {
				t.Session = done.Session
				t.live.settle(done.Session.LastSeq)
				out = append(out, say("turn %d is the last one now; files %s", to.Number, r.Files)...)
				undo := ""
				switch {
				case files:
					undo = " --files --yes" // without --yes the command only shows the plan
				case r.Files == holdfast.FilesKept:
					out = append(out, say("the files stay as they are; to see what would take them back, too: holdfast session rewind %s --to %s --files", id, to.ID)...)
				}
				if r.Kept != "" {
					out = append(out, say("to undo: holdfast session rewind %s --to %s%s", id, r.Kept, undo)...)
				}
			}
			if err != nil {
				out = append(out, trouble(err)...)
			}
			return []Effect{out}
		}
	})
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
			return []Effect{Remember{s.ID}, t.greeting(true), Follow{s.ID, s.LastSeq}}
		}
	})
}
