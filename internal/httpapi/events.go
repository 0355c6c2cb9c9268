package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
	"github.com/holdfast-run/holdfast/internal/httpapi/stream"
)

type eventsInput struct {
	SessionInput
	After  string `query:"after" doc:"The sequence number of the last event already seen; 0 is the beginning."`
	LastID string `header:"Last-Event-ID" doc:"The same, as a reconnecting browser sends it; it wins over after."`
	Types  string `query:"type" doc:"Only these types, separated by commas."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"The page size of the JSON answer; 100 when absent."`
	Accept string `header:"Accept" doc:"text/event-stream for a stream that goes on."`
}

type eventPage struct {
	Events []holdfast.Event `json:"events"`
	// Next is the value of after for the next page; absent if this page is not full.
	Next int64 `json:"next,omitempty"`
}

type transcriptInput struct {
	SessionInput
	After string `query:"after" doc:"The sequence number of the last entry already seen."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" doc:"The page size; 1000 when absent."`
}

type searchInput struct {
	Query   string `query:"q" required:"true" doc:"Words that must all occur, \"phrases in quotes\", begin* of a word; in any case, with or without accents."`
	Session string `query:"session" doc:"Only in this session."`
	Cursor  string `query:"cursor" doc:"The next of the page before."`
	Limit   int    `query:"limit" minimum:"1" maximum:"200" doc:"The page size; 20 when absent."`
}

type transcriptOutput struct {
	Body struct {
		Entries []holdfast.TranscriptEntry `json:"entries"`
		// Next is the value of after for the next page; absent if this page is not full.
		Next int64 `json:"next,omitempty"`
	}
}

func (a *API) eventRoutes() {
	const tag = "events"
	events := route(http.MethodGet, "/v1/sessions/{id}/events", "read-events", tag, "Read the log: one page as JSON, or a stream that goes on")
	events.Responses = map[string]*huma.Response{
		"200": spec.JSON(a.huma, "A page of the log, or the stream.", eventPage{}),
	}
	for ct, media := range spec.Stream("").Content {
		events.Responses["200"].Content[ct] = media
	}
	handleOne(a, events, a.readEvents)
	handleOne(a, route(http.MethodGet, "/v1/sessions/{id}/transcript", "read-transcript", tag,
		"Read the conversation: messages, tool calls and their results"), a.readTranscript)
	handle(a, route(http.MethodGet, "/v1/search", "search", tag, "Search titles and conversations, newest sessions first"),
		func(ctx context.Context, in *searchInput) (*output[holdfast.SearchPage], error) {
			return bodyOf(a.cfg.Views.Search(ctx, holdfast.SearchRequest{Query: in.Query, Session: in.Session, Cursor: in.Cursor, Limit: in.Limit}))
		})
}

func (a *API) readEvents(ctx context.Context, id holdfast.SessionID, in *eventsInput) (*raw, error) {
	after, err := stream.Cursor(in.LastID, in.After)
	if err != nil {
		return nil, err
	}
	types, err := stream.Types(in.Types)
	if err != nil {
		return nil, err
	}
	if !lists(in.Accept, "text/event-stream") {
		return a.pageOfEvents(ctx, id, holdfast.EventFilter{After: after, Limit: in.Limit, Types: types})
	}
	src, err := a.cfg.Views.Follow(ctx, id, after)
	if err != nil {
		return nil, err
	}
	return answer(func(w http.ResponseWriter, r *http.Request) {
		defer src.Close()
		if r.Method == http.MethodHead {
			return
		}
		ctx, cancel := a.streams.Join(r.Context())
		defer cancel()
		a.streams.Send(ctx, w, src, func(e holdfast.Event) stream.Choice {
			return stream.Choice{Write: len(types) == 0 || slices.Contains(types, e.Type)}
		})
	}), nil
}

func (a *API) pageOfEvents(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) (*raw, error) {
	f.Limit = cmp.Or(f.Limit, 100)
	events, err := a.cfg.Views.Events(ctx, id, f)
	if err != nil {
		return nil, err
	}
	page := eventPage{Events: some(events)}
	if len(events) == f.Limit {
		page.Next = events[len(events)-1].Seq
	}
	return answer(func(w http.ResponseWriter, r *http.Request) { a.writeJSON(w, r, http.StatusOK, page) }), nil
}

// lists reports whether the comma-separated names of a header, such as Accept or Prefer, include
// want. It ignores parameters after a semicolon, and case.
func lists(header, want string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), want) {
			return true
		}
	}
	return false
}

func (a *API) readTranscript(ctx context.Context, id holdfast.SessionID, in *transcriptInput) (*transcriptOutput, error) {
	after, err := stream.Cursor("", in.After)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(in.Limit, 1000)
	events, err := a.cfg.Views.Events(ctx, id, holdfast.EventFilter{After: after, Limit: limit, Types: conversation.EntryTypes()})
	if err != nil {
		return nil, err
	}
	out := &transcriptOutput{}
	if len(events) == limit {
		out.Body.Next = events[len(events)-1].Seq
	}
	out.Body.Entries, err = conversation.Transcript(events)
	return out, err
}
