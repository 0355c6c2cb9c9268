package acpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/policy"
)

// API are the methods of a server's client that this package calls; *client.Client implements it.
type API interface {
	CreateSession(ctx context.Context, req holdfast.CreateSession, key string) (holdfast.Session, error)
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	Sessions(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error)
	UpdateSession(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error)
	Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error)
	Follow(ctx context.Context, id holdfast.SessionID, after int64, types ...holdfast.EventType) iter.Seq2[holdfast.Event, error]
	Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	AllApprovals(ctx context.Context, f holdfast.ApprovalFilter) iter.Seq2[holdfast.Approval, error]
	AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error)
}

// Config configures Serve. API, NewKey and Log are required.
type Config struct {
	API     API
	Version string
	// Create is the request with which new sessions are created.
	Create holdfast.CreateSession
	// Workspace returns a workspace by its id, if the server runs on the editor's machine: then new sessions work in
	// the editor's directory. It is nil for a server on another machine.
	Workspace func(ctx context.Context, id holdfast.Slug) (holdfast.Workspace, error)
	// Umask is that of the editor's user, in octal, for the files that sessions make in the editor's directory; empty
	// if it is not known.
	Umask string
	// Editor lends unsaved texts to the file tools of a session until ctx or the connection ends (see client.Client);
	// nil for a server elsewhere. attached is called once the server may ask.
	Editor func(ctx context.Context, id holdfast.SessionID, attached func(), text func(ctx context.Context, path string) (string, bool, error)) error
	// Models are the models that the editor may choose besides the session's own.
	Models []string
	// Tools are the tools that the server's runtimes register besides the standard ones. Calls of all other tools are
	// shown as JSON.
	Tools []policy.Tool
	// NewKey makes an idempotency key.
	NewKey func() (string, error)
	Log    *slog.Logger
}

// server is one connection to an editor.
type server struct {
	cfg  Config
	peer *jsonrpc.Peer
	// ctx ends with the connection; work counts the goroutines that Serve waits for.
	ctx  context.Context
	work sync.WaitGroup

	mu sync.Mutex
	// reads is true if the editor answers requests for the text of a file (fs/read_text_file).
	reads bool
	// sessions are the sessions that the editor has open; nil once the connection has ended.
	sessions map[holdfast.SessionID]*session
}

// Serve speaks the protocol until the input or ctx ends. Running turns continue at the server afterwards. Its error
// says why the input could not be read; it is nil if the input ended normally or ctx ended.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{cfg: cfg, ctx: ctx, sessions: map[holdfast.SessionID]*session{}}
	s.peer = jsonrpc.New(jsonrpc.Config{
		In: in, Out: out, Log: cfg.Log, Serve: s.serve, Notified: s.notified,
		Cancel: "$/cancel_request", Long: acp.AgentMethodSessionPrompt,
	})
	err := s.peer.Run(ctx)
	cancel()
	s.mu.Lock()
	s.sessions = nil
	s.mu.Unlock()
	s.work.Wait()
	return err
}

// serve returns the work of a request. A prompt is registered at once, so that a cancel that
// follows finds it.
func (s *server) serve(method string, params json.RawMessage) jsonrpc.Work {
	if method == acp.AgentMethodSessionPrompt {
		return s.prompt(params)
	}
	call, ok := methods()[method]
	if !ok {
		return nil
	}
	return func(ctx context.Context) (any, error) { return call(s, ctx, params) }
}

// notified handles a notification.
func (s *server) notified(method string, params json.RawMessage) {
	if method == acp.AgentMethodSessionCancel {
		s.cancelSession(params)
	}
}

type method func(*server, context.Context, json.RawMessage) (any, error)

// checked is a pointer to a request with a Validate method.
type checked[T any] interface {
	*T
	Validate() error
}

// typed converts a function on decoded requests to a method.
func typed[T any, P checked[T], R any](do func(*server, context.Context, T) (R, error)) method {
	return func(s *server, ctx context.Context, params json.RawMessage) (any, error) {
		var req T
		if err := decode[T, P](params, &req); err != nil {
			return nil, err
		}
		res, err := do(s, ctx, req)
		if err != nil {
			return nil, refusal(err)
		}
		return res, nil
	}
}

func decode[T any, P checked[T]](params json.RawMessage, req *T) error {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	err := json.Unmarshal(params, req)
	if err == nil {
		err = P(req).Validate()
	}
	if err != nil {
		return &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "invalid params: " + err.Error()}
	}
	return nil
}

func methods() map[string]method {
	return map[string]method{
		acp.AgentMethodInitialize:      typed((*server).initialize),
		acp.AgentMethodAuthenticate:    typed((*server).authenticate),
		acp.AgentMethodSessionNew:      typed((*server).newSession),
		acp.AgentMethodSessionLoad:     typed((*server).loadSession),
		acp.AgentMethodSessionResume:   typed((*server).resumeSession),
		acp.AgentMethodSessionList:     typed((*server).listSessions),
		acp.AgentMethodSessionClose:    typed((*server).closeSession),
		acp.AgentMethodSessionSetMode:  typed((*server).setMode),
		acp.AgentMethodSessionSetModel: typed((*server).setModel),
	}
}

func (s *server) initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	title := "Holdfast"
	s.mu.Lock()
	s.reads = req.ClientCapabilities.Fs.ReadTextFile
	s.mu.Unlock()
	return acp.InitializeResponse{
		// The server speaks this version of the protocol, whatever version the editor asked for.
		ProtocolVersion: acp.ProtocolVersionNumber,
		AgentInfo:       &acp.Implementation{Name: "holdfast", Title: &title, Version: s.cfg.Version},
		AuthMethods:     []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: acp.PromptCapabilities{EmbeddedContext: true},
			SessionCapabilities: acp.SessionCapabilities{
				List: &acp.SessionListCapabilities{}, Resume: &acp.SessionResumeCapabilities{}, Close: &acp.SessionCloseCapabilities{},
			},
		},
	}, nil
}

// lends reports whether the editor gives the server unsaved texts for a session that works in a directory of the
// editor's machine.
func (s *server) lends(at place) bool {
	if s.cfg.Editor == nil || at == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *server) authenticate(_ context.Context, req acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, holdfast.Errorf(holdfast.KindInvalid, "acp", "there is no authentication method %s", holdfast.Quote(req.MethodId)).
		WithHint("set HOLDFAST_TOKEN in the environment of holdfast acp")
}

// refusal converts an error to one for the editor. The kind of the error decides its JSON-RPC code.
func refusal(err error) *jsonrpc.Error {
	var sent *jsonrpc.Error
	if errors.As(err, &sent) {
		return sent
	}
	code := jsonrpc.InternalError
	switch holdfast.KindOf(err) {
	case holdfast.KindInvalid, holdfast.KindTooLarge:
		code = jsonrpc.InvalidParams
	case holdfast.KindUnauthenticated:
		code = -32000
	case holdfast.KindNotFound, holdfast.KindGone:
		code = -32002
	}
	return coded(code, err)
}

// coded converts an error to one for the editor, with the given code and one line of text that includes the hint.
func coded(code int, err error) *jsonrpc.Error {
	kind, hint, text := holdfast.KindOf(err), holdfast.HintOf(err), err.Error()
	if hint != "" {
		text += "; hint: " + hint
	}
	e := &jsonrpc.Error{Code: code, Message: text}
	if data, err := json.Marshal(map[string]any{"kind": kind, "hint": hint}); err == nil {
		e.Data = data
	}
	return e
}
