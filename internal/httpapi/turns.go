package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
	"github.com/holdfast-run/holdfast/internal/httpapi/stream"
	"github.com/holdfast-run/holdfast/internal/journal"
)

type sendInput struct {
	SessionInput
	plain
	Key    string `header:"Idempotency-Key" doc:"Makes a repeated request answer with the first one's turn."`
	Prefer string `header:"Prefer" doc:"stream: answer with the turn's event stream, which closes after its last event."`
	Body   holdfast.SendMessage
}

type turnInput struct {
	SessionInput
	Turn string `path:"turn" doc:"The turn's id, a UUID."`
}

type turnOutput struct {
	Body struct {
		Turn holdfast.Turn `json:"turn"`
	}
}

type turnsInput struct {
	SessionInput
	After int64 `query:"after" minimum:"0" doc:"The number of the last turn already seen."`
	Limit int   `query:"limit" minimum:"1" maximum:"500" doc:"The page size; 100 when absent."`
}

type turnsOutput struct {
	Body struct {
		Turns []holdfast.Turn `json:"turns"`
		// Next is the value of after for the next page; absent if this page is not full.
		Next int64 `json:"next,omitempty"`
	}
}

func (a *API) turnRoutes() {
	const tag, base = "turns", "/v1/sessions/{id}/turns"
	send := route(http.MethodPost, base, "send-message", tag, "Send a message: it becomes a turn, or joins the running one")
	send.DefaultStatus = http.StatusAccepted
	send.MaxBodyBytes = body.Large
	send.Responses = map[string]*huma.Response{
		"202": spec.JSON(a.huma, "The message is durable.", holdfast.Sent{}),
		"200": spec.Stream("With Prefer: stream, the events of the turn until its last one; headers Holdfast-Turn and Holdfast-Seq say which turn and from where."),
	}
	handleOne(a, send, a.sendMessage)
	handleOne(a, route(http.MethodGet, base, "list-turns", tag, "List turns by number"), a.listTurns)
	handleOne(a, route(http.MethodGet, "/v1/sessions/{id}/usage", "get-usage", tag, "What the session used up, and what it may"), a.usage)
	handleOne(a, route(http.MethodGet, base+"/{turn}", "get-turn", tag, "Show a turn"), a.getTurn)
}

func (a *API) sendMessage(ctx context.Context, id holdfast.SessionID, in *sendInput) (*raw, error) {
	in.Body.Key, in.Body.MaxTrust = in.Key, guard.CallerOf(ctx).MaxTrust()
	streamed := lists(in.Prefer, "stream")
	var src *journal.Reader
	var from int64
	var err error
	if streamed {
		// Open the reader of the log before the message is sent, so that it gets the turn's events from memory.
		if src, from, err = a.followEnd(ctx, id); err != nil {
			return nil, err
		}
	}
	sent, err := a.cfg.Sessions.Send(ctx, id, in.Body)
	if err != nil {
		if src != nil {
			src.Close()
		}
		return nil, err
	}
	h := in.w.Header()
	h.Set("Location", "/v1/sessions/"+string(id)+"/turns/"+string(sent.Turn.ID))
	if sent.Duplicate {
		h.Set(spec.Replayed, "true")
	}
	if !streamed {
		return answer(func(w http.ResponseWriter, r *http.Request) { a.writeJSON(w, r, http.StatusAccepted, sent) }), nil
	}
	if at := replayFrom(sent); at < from {
		// The request repeats an earlier one, whose turn began before this reader was opened.
		src.Close()
		if src, err = a.cfg.Views.Follow(ctx, id, at); err != nil {
			return nil, err
		}
	}
	h.Set("Preference-Applied", "stream")
	h.Set("Holdfast-Turn", string(sent.Turn.ID))
	h.Set("Holdfast-Seq", strconv.FormatInt(sent.Seq, 10))
	return answer(func(w http.ResponseWriter, r *http.Request) {
		defer src.Close()
		ctx, cancel := a.streams.Join(r.Context())
		defer cancel()
		a.streams.Send(ctx, w, src, ofTurn(sent.Turn.ID, replayFrom(sent)))
	}), nil
}

// replayFrom returns the sequence number after which all events of the turn follow. For a repeated
// request that is the one before the turn's message, if it is known.
func replayFrom(s holdfast.Sent) int64 {
	if s.Duplicate && s.Turn.MessageSeq > 0 && s.Turn.MessageSeq <= s.Seq {
		return s.Turn.MessageSeq - 1
	}
	return s.Seq
}

// followEnd opens a reader at the end of a session's log, and returns the sequence number of that
// end.
func (a *API) followEnd(ctx context.Context, id holdfast.SessionID) (*journal.Reader, int64, error) {
	s, err := a.cfg.Views.Session(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	src, err := a.cfg.Views.Follow(ctx, id, s.LastSeq)
	return src, s.LastSeq, err
}

// ofTurn returns a filter for the events after a sequence number that belong to the turn, or to no
// turn (boxes, notices). The event that ends the turn is the last.
func ofTurn(turn holdfast.TurnID, after int64) func(holdfast.Event) stream.Choice {
	return func(e holdfast.Event) stream.Choice {
		if e.Seq > 0 && e.Seq <= after {
			return stream.Choice{}
		}
		mine := e.Turn == turn
		return stream.Choice{Write: mine || e.Turn == "", Last: mine && e.EndsTurn()}
	}
}

func (a *API) listTurns(ctx context.Context, id holdfast.SessionID, in *turnsInput) (*turnsOutput, error) {
	limit := cmp.Or(in.Limit, 100)
	turns, err := a.cfg.Views.Turns(ctx, id, in.After, limit)
	if err != nil {
		return nil, err
	}
	out := &turnsOutput{}
	out.Body.Turns = some(turns)
	if len(turns) == limit {
		out.Body.Next = turns[len(turns)-1].Number
	}
	return out, nil
}

func (a *API) usage(ctx context.Context, id holdfast.SessionID, in *SessionInput) (*output[holdfast.SessionUsage], error) {
	return bodyOf(a.cfg.Views.Usage(ctx, id))
}

func (a *API) getTurn(ctx context.Context, id holdfast.SessionID, in *turnInput) (*turnOutput, error) {
	turn, err := holdfast.Parse[holdfast.TurnID](in.Turn)
	if err != nil {
		return nil, err
	}
	out := &turnOutput{}
	out.Body.Turn, err = a.cfg.Views.Turn(ctx, id, turn)
	return out, err
}
