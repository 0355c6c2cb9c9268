package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
	"github.com/holdfast-run/holdfast/internal/httpapi/stream"
)

type execInput struct {
	SessionInput
	Accept string `header:"Accept" doc:"text/event-stream for output as it comes."`
	Body   holdfast.ExecRequest
}

// chunk is the data of an event stdout or stderr.
type chunk struct {
	// Data is base64 in JSON: output need not be text.
	Data []byte `json:"data"`
}

func (a *API) execRoutes() {
	const tag = "box"
	exec := route(http.MethodPost, "/v1/sessions/{id}/exec", "exec", tag, "Run a command in the session's box")
	exec.MaxBodyBytes = body.Large
	exec.Responses = map[string]*huma.Response{"200": spec.JSON(a.huma,
		"The result. As a stream: events stdout and stderr with base64 data, then one event exit with the result, or error with a problem.", holdfast.ExecResult{})}
	for ct, media := range spec.Stream("").Content {
		exec.Responses["200"].Content[ct] = media
	}
	handleOne(a, exec, a.exec)

	term := route(http.MethodGet, "/v1/sessions/{id}/terminal", "terminal", tag, "Open a terminal in the session's box (WebSocket)")
	term.DefaultStatus = http.StatusSwitchingProtocols
	term.Description = `Binary messages are the terminal's bytes, both ways. Text messages are JSON: {"resize":{"rows":24,"cols":80}} to the server, {"exit":0,"class":"ok"} (with signal and message where a command ends by them) or {"error":problem} as the last one from it. With exec=true the first message to the server is {"exec":{"argv":["top"]}}, with the fields of an exec but stdin: that command gets the terminal.`
	term.Responses = map[string]*huma.Response{"101": {Description: "The connection is a WebSocket now."}}
	handleOne(a, term, a.terminal)
}

func (a *API) exec(ctx context.Context, id holdfast.SessionID, in *execInput) (*raw, error) {
	guard.LeaveRoom(ctx)
	if lists(in.Accept, "text/event-stream") {
		return answer(func(w http.ResponseWriter, r *http.Request) { a.execStream(w, r, id, in.Body) }), nil
	}
	ctx, cancel := a.streams.Join(ctx)
	defer cancel()
	res, err := a.cfg.Boxes.Exec(ctx, id, in.Body, nil, nil)
	if err != nil {
		return nil, err
	}
	return answer(func(w http.ResponseWriter, r *http.Request) { a.writeJSON(w, r, http.StatusOK, res) }), nil
}

// execStream runs a command and sends its output as events while it runs. The header is sent with
// the first output or ping, so that an error before that is still a problem document.
func (a *API) execStream(w http.ResponseWriter, r *http.Request, id holdfast.SessionID, req holdfast.ExecRequest) {
	ctx, cancel := a.streams.Join(r.Context())
	defer cancel()
	out := &execSink{events: a.streams.Events(w)}
	var wg sync.WaitGroup
	wg.Go(func() { out.pings(ctx, a.cfg.Waits.Ping, cancel) })
	res, err := a.cfg.Boxes.Exec(ctx, id, req, execStdio{out, "stdout"}, execStdio{out, "stderr"})
	cancel()
	wg.Wait()
	switch {
	case err == nil:
		_ = out.send("exit", res) // if the client has disconnected, it gets no result
	case out.events.Begun():
		out.events.Fail(err)
	default:
		a.problems.Answer(w, r, err)
	}
}

// execSink is the event stream that both outputs of a command share.
type execSink struct {
	mu     sync.Mutex
	events *stream.Events
}

func (s *execSink) send(name string, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.events.Add(name, v); err != nil {
		return err
	}
	return s.events.Flush()
}

// pings sends a comment at intervals until ctx ends, to keep the connection alive. If the client
// is gone it calls dead, which stops the command.
func (s *execSink) pings(ctx context.Context, every time.Duration, dead context.CancelFunc) {
	for clock.Pause(ctx, every) == nil {
		s.mu.Lock()
		err := s.events.Ping()
		s.mu.Unlock()
		if err != nil {
			dead()
			return
		}
	}
}

// execStdio is a writer that sends one output of a command, stdout or stderr, to the event stream.
type execStdio struct {
	sink *execSink
	name string
}

func (o execStdio) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := o.sink.send(o.name, chunk{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}
