package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// maxAnswer is the most bytes of an answer's text in a result, maxField of any other field, maxPage of all its events.
const (
	maxAnswer = 64 << 10
	maxField  = 4 << 10
	maxPage   = 96 << 10
)

type sendIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Text    string `json:"text" jsonschema:"the message"`
	Mode    string `json:"mode,omitempty" jsonschema:"while a turn runs: queue (default) waits for it, steer joins it, interrupt ends it first"`
	Wait    *int   `json:"wait_seconds,omitempty" jsonschema:"how long to wait for the end of the turn, 0-600; 50 when absent"`
	Key     string `json:"key,omitempty" jsonschema:"idempotency key: a repeated call with the same key returns the same turn"`
}

type turnOut struct {
	Turn   string `json:"turn"`
	Status string `json:"status"`
	// Result is the final text of a completed turn, Text the text so far of a turn that goes on.
	Result     string        `json:"result,omitempty"`
	Text       string        `json:"text,omitempty"`
	StopReason string        `json:"stop_reason,omitempty"`
	Error      string        `json:"error,omitempty"`
	Hint       string        `json:"hint,omitempty"`
	Tools      int           `json:"tool_calls"`
	Denied     int           `json:"tool_calls_denied,omitempty"`
	Questions  []questionOut `json:"waits_for,omitempty"`
	// LastSeq is the event number after which read_events continues.
	LastSeq   int64 `json:"last_seq"`
	Duplicate bool  `json:"duplicate,omitempty"`
}

type questionOut struct {
	ID     string `json:"approval"`
	Tool   string `json:"tool"`
	Input  string `json:"input"`
	Reason string `json:"reason"`
}

func (s *server) send(ctx context.Context, tell progress, in sendIn) (turnOut, error) {
	wait := 50 * time.Second
	if in.Wait != nil {
		if *in.Wait < 0 || *in.Wait > 600 {
			return turnOut{}, holdfast.Errorf(holdfast.KindInvalid, "mcp", "the argument wait_seconds is %d, which is not within 0-600", *in.Wait).
				WithHint("give fewer wait_seconds, then follow the turn with read_events")
		}
		wait = time.Duration(*in.Wait) * time.Second
	}
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return turnOut{}, err
	}
	key, err := s.key(in.Key)
	if err != nil {
		return turnOut{}, err
	}
	// The server refuses the turn if the session's trust has changed since it was checked.
	sent, err := s.cfg.API.Send(ctx, one.ID, holdfast.SendMessage{Text: in.Text, Mode: in.Mode, Key: key, Trust: string(one.Trust)})
	if err != nil {
		return turnOut{}, err
	}
	out := turnOut{Turn: string(sent.Turn.ID), Status: string(sent.Turn.Status), LastSeq: sent.Seq, Duplicate: sent.Duplicate}
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err = s.follow(waiting, tell, one.ID, &out)
		if holdfast.IsKind(err, holdfast.KindUnavailable) {
			// The message is accepted: the turn goes on even if the server is unavailable now.
			out.Error, err = clip.Counted(err.Error(), maxField), nil
		}
	}
	if err == nil && out.Status != string(holdfast.TurnCompleted) && out.Status != string(holdfast.TurnFailed) && out.Status != string(holdfast.TurnInterrupted) {
		out.Hint = "the turn goes on: read_events with session " + string(one.ID) + ", after " + fmt.Sprint(out.LastSeq) + " and wait_seconds"
		if len(out.Questions) > 0 {
			out.Hint = "a person has to answer: holdfast approvals allow " + out.Questions[0].ID + "; then read_events after " + fmt.Sprint(out.LastSeq)
		}
	}
	return out, err
}

// follow reads the session's log until the turn ends, asks for an approval or ctx ends, and reports
// progress.
func (s *server) follow(ctx context.Context, tell progress, id holdfast.SessionID, out *turnOut) error {
	defer heartbeat(ctx, func(s time.Duration) { tell("still waiting after %.0f s", s.Seconds()) })()
	for ev, err := range s.cfg.API.Follow(ctx, id, out.LastSeq) {
		if err != nil {
			if ctx.Err() != nil {
				return nil // the caller waits no longer, and the turn goes on
			}
			return err
		}
		if ev.Seq > 0 {
			out.LastSeq = ev.Seq
		}
		if string(ev.Turn) == out.Turn {
			out.take(ev, tell)
		}
		if ev.EndsTurn() && string(ev.Turn) == out.Turn || len(out.Questions) > 0 {
			return nil
		}
	}
	return nil
}

// beat is the interval of progress messages to a waiting caller: clients give up after a silence.
const beat = 10 * time.Second

// heartbeat reports the time that has passed, again and again, until ctx ends or stop is called.
func heartbeat(ctx context.Context, tell func(time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		for n := time.Duration(1); clock.Pause(ctx, beat) == nil; n++ {
			tell(n * beat)
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// take adds an event of the turn to its result. It ignores an event that does not decode.
func (o *turnOut) take(ev holdfast.Event, tell progress) {
	step, err := conversation.Of(ev)
	if err != nil {
		return
	}
	switch s := step.(type) {
	case *conversation.Begun:
		o.Status = string(holdfast.TurnRunning)
		tell("the turn runs")
	case *conversation.Answer:
		o.Text = clip.Counted(o.Text+s.AssistantMessage.Text(), maxAnswer)
	case *conversation.Request:
		o.Tools++
		tell("%s %s", s.Name, s.Input)
	case *conversation.Outcome:
		if s.How == conversation.Denied {
			o.Denied++
		}
	case *conversation.Asked:
		a := s.Question
		o.Questions = append(o.Questions, questionOut{ID: string(a.ID), Tool: a.Tool, Input: clip.Counted(string(a.Input), maxField), Reason: clip.Counted(a.Reason, maxField)})
		tell("%s waits for a person: %s", a.Tool, a.Reason)
	case *conversation.End:
		o.Status, o.Text = strings.TrimPrefix(string(s.How), "turn."), ""
		o.Result, o.StopReason = clip.Counted(s.Result, maxAnswer), s.StopReason
		o.Error, o.Hint = clip.Counted(s.Message, maxField), clip.Counted(s.Hint, maxField)
	}
}

type readIn struct {
	Session string   `json:"session" jsonschema:"the session's id"`
	After   int64    `json:"after,omitempty" jsonschema:"the number of the last event already seen; 0 is the beginning"`
	Limit   int      `json:"limit,omitempty" jsonschema:"how many events at the most, 1-200; 50 when absent"`
	Types   []string `json:"types,omitempty" jsonschema:"only these types, such as turn.completed or message.assistant"`
	Wait    int      `json:"wait_seconds,omitempty" jsonschema:"how many seconds to wait for a new event, 0-600"`
}

type eventOut struct {
	Seq  int64  `json:"seq"`
	Type string `json:"type"`
	Turn string `json:"turn,omitempty"`
	Time string `json:"time"`
	// Data is the payload; if it is too long, Cut holds its beginning instead.
	Data any    `json:"data,omitempty"`
	Cut  string `json:"data_cut,omitempty"`
}

type readOut struct {
	Events []eventOut `json:"events"`
	// After is the number to continue after; More is true if there are more events already.
	After int64 `json:"after"`
	More  bool  `json:"more,omitempty"`
}

func (s *server) read(ctx context.Context, _ progress, in readIn) (readOut, error) {
	out := readOut{Events: []eventOut{}, After: in.After}
	if in.Wait < 0 || in.Wait > 600 || in.Limit < 0 || in.Limit > 200 || in.After < 0 {
		return out, holdfast.Errorf(holdfast.KindInvalid, "mcp", "an argument is out of range: after is %d and must be at least 0, limit is %d and must be 0-200, wait_seconds is %d and must be 0-600", in.After, in.Limit, in.Wait)
	}
	id, err := holdfast.Parse[holdfast.SessionID](in.Session)
	if err != nil {
		return out, err
	}
	if in.Limit == 0 {
		in.Limit = 50
	}
	one, err := s.cfg.API.Session(ctx, id)
	if err != nil || in.After >= one.LastSeq && in.Wait == 0 {
		return out, err
	}
	waiting, cancel := context.WithTimeout(ctx, max(time.Duration(in.Wait)*time.Second, 10*time.Second))
	defer cancel()
	want := map[holdfast.EventType]bool{}
	for _, t := range in.Types {
		want[holdfast.EventType(t)] = true
	}
	size := 0
	for ev, err := range s.cfg.API.Follow(waiting, id, in.After) {
		if err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return out, nil
			}
			return out, err
		}
		if ev.Seq == 0 {
			continue
		}
		if len(want) == 0 || want[ev.Type] {
			e := wireEvent(ev)
			size += min(len(ev.Data), maxField) + 200
			if len(out.Events) == in.Limit || size > maxPage && len(out.Events) > 0 {
				out.More = true
				return out, nil
			}
			out.Events = append(out.Events, e)
		}
		out.After = ev.Seq
		// At the end of the log, do not wait if there is an event to return.
		if ev.Seq >= one.LastSeq && (len(out.Events) > 0 || in.Wait == 0) {
			return out, nil
		}
	}
	return out, nil
}

func wireEvent(ev holdfast.Event) eventOut {
	e := eventOut{Seq: ev.Seq, Type: string(ev.Type), Turn: string(ev.Turn), Time: ev.Time.UTC().Format(time.RFC3339Nano)}
	if len(ev.Data) > maxField || json.Unmarshal(ev.Data, &e.Data) != nil {
		e.Data, e.Cut = nil, clip.Counted(string(ev.Data), maxField)
	}
	return e
}
