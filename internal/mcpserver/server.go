package mcpserver

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
)

// API is the access to a server's sessions and turns. *client.Client implements it, as well as
// Approvals and Files.
type API interface {
	CreateSession(ctx context.Context, req holdfast.CreateSession, key string) (holdfast.Session, error)
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	Sessions(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error)
	Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error)
	Follow(ctx context.Context, id holdfast.SessionID, after int64, types ...holdfast.EventType) iter.Seq2[holdfast.Event, error]
	Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	EndSession(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
}

// Approvals is the access to questions about tool calls that wait for a person.
type Approvals interface {
	Approval(ctx context.Context, id holdfast.ApprovalID) (holdfast.Approval, error)
	AnswerApproval(ctx context.Context, id holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error)
}

// Config configures Serve. API, Approvals, Files, NewKey and Log are required.
type Config struct {
	API       API
	Approvals Approvals
	Files     Files
	Version   string
	// MaxTrust is the highest trust of sessions that calls create or use; empty means untrusted.
	MaxTrust holdfast.Trust
	// AllowApprove offers the tool that answers approvals in a person's place.
	AllowApprove bool
	// NewKey makes an idempotency key.
	NewKey func() (string, error)
	Log    *slog.Logger
}

const instructions = `Sessions are durable conversations with agents that work in sandboxes of their own; they outlive this connection and the server's crashes. Make one with create_session, give it work with send_message, and follow what it does with read_events. A turn that takes longer than you wait for goes on. Each session's files are in /workspace of its own box: it does not see yours. write_file and read_file pass files to it and back.`

// server implements the tools.
type server struct {
	cfg   Config
	peer  *jsonrpc.Peer
	tools []tool
}

// Serve speaks the protocol until the input or ctx ends. Running turns continue at the server afterwards. Its error
// says why the input could not be read; it is nil if the input ended normally or ctx ended.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	if cfg.MaxTrust == "" {
		cfg.MaxTrust = holdfast.Untrusted
	}
	s := &server{cfg: cfg}
	if err := s.addTools(); err != nil {
		return err
	}
	s.peer = jsonrpc.New(jsonrpc.Config{In: in, Out: out, Log: cfg.Log, Serve: s.serve, Cancel: "notifications/cancelled"})
	return s.peer.Run(ctx)
}

// addTools adds the tools to the server; the tool approve only if Config.AllowApprove is set.
func (s *server) addTools() error {
	no := new(bool)
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no}
	adds := &mcp.ToolAnnotations{DestructiveHint: no, IdempotentHint: true}
	ends := &mcp.ToolAnnotations{IdempotentHint: true}
	err := errors.Join(
		add(s, mcp.Tool{Name: "create_session", Annotations: adds, Description: "Make a session: a durable conversation with an agent in a sandbox of its own."}, s.create),
		add(s, mcp.Tool{Name: "list_sessions", Annotations: reads, Description: "List sessions, newest first."}, s.list),
		add(s, mcp.Tool{Name: "send_message", Description: "Send a message to a session and wait for the end of the turn. After wait_seconds, or when the turn asks a person something, the result has the events so far: the turn goes on, and read_events returns its later events."}, s.send),
		add(s, mcp.Tool{Name: "read_events", Annotations: reads, Description: "Read a session's log after an event number: messages, tool calls and their results, the ends of turns. With wait_seconds it waits for something new."}, s.read),
		add(s, mcp.Tool{Name: "list_files", Annotations: reads, Description: "List a directory of a session's files."}, s.listFiles),
		add(s, mcp.Tool{Name: "read_file", Annotations: reads, Description: "Read a file of a session, in pieces of 48 KiB."}, s.readFile),
		add(s, mcp.Tool{Name: "write_file", Annotations: ends, Description: "Create or replace a file of a session."}, s.writeFile),
		add(s, mcp.Tool{Name: "interrupt", Annotations: ends, Description: "End the running turn of a session."}, s.interrupt),
		add(s, mcp.Tool{Name: "end_session", Annotations: ends, Description: "End a session for good. Its log and files stay."}, s.end),
	)
	if s.cfg.AllowApprove {
		err = errors.Join(err, add(s, mcp.Tool{Name: "approve", Annotations: ends, Description: "Answer the approval that a tool call of a session waits for, in place of a person."}, s.approve))
	}
	return err
}

// key returns the idempotency key of a call: the caller's own, else a new one.
func (s *server) key(own string) (string, error) {
	if own == "" {
		return s.cfg.NewKey()
	}
	if len(own) > 100 {
		return "", holdfast.Errorf(holdfast.KindInvalid, "mcp", "the idempotency key %s is longer than 100 bytes", holdfast.Quote(own)).WithHint("use a shorter idempotency key")
	}
	return "mcp-" + own, nil
}
