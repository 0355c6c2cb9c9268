package chat

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Patience is how long a chat waits for a server that does not answer until it gives up.
const Patience = 24 * time.Hour

// Chat holds what a conversation needs from its caller. Its functions are never nil.
type Chat struct {
	Stdin io.Reader
	// Person is true if a person types on stdin, not a program. JSON makes the chat print events by
	// PrintJSON instead of text.
	Person, JSON bool
	Printer      *plain.Printer
	PrintJSON    func(holdfast.Event) error
	// Session is the session to talk with, unless Create is set. Create describes the session that the first
	// message creates. Key is the idempotency key of that creation, if the user gave one.
	Session holdfast.Session
	Create  *holdfast.CreateSession
	Key     string
	// Client makes a client of the server.
	Client func(client.Config) (*client.Client, error)
	// Remember records a session as the one that the user used last (@last); About returns warnings
	// about a session that the chat opens or creates, or makes by a fork.
	Remember func(holdfast.SessionID)
	About    func(s holdfast.Session, forked bool) []plain.Line
	NewKey   func() (string, error)
	// Copy copies between the local disk and a session, and returns the lines to show. A path of
	// the session begins with a colon.
	Copy func(ctx context.Context, id holdfast.SessionID, src, dst string) ([]string, error)
	// Compare returns the comparison that the words after /diff ask for, and the command that prints that comparison.
	Compare func(ctx context.Context, c *client.Client, id holdfast.SessionID, words []string) (of holdfast.CompareCheckpoints, command string, err error)
	Signals <-chan os.Signal
	// Screen is the terminal that OnScreen draws on.
	Screen Terminal
}

// Outcome is how a conversation ended.
type Outcome struct {
	Code    int
	Session holdfast.SessionID
	// Lost is the error that ended the event stream before the user left, or nil.
	Lost error
}

// talk returns the initial state of the conversation.
func (c *Chat) talk() *Talk {
	t := NewTalk(c.Session, c.Create)
	t.Person, t.JSON, t.About, t.Copy, t.Compare = c.Person, c.JSON, c.About, c.Copy, c.Compare
	t.Teller.Asks = c.Person
	return t
}

// link returns the link to the server. It calls post with each Input that events and answers of
// the server lead to.
func (c *Chat) link(ctx context.Context, post func(Input)) (*link, error) {
	l := &link{
		ctx: ctx, post: post, newKey: c.NewKey, firstKey: c.Key,
		person: c.Person, remember: c.Remember,
	}
	var err error
	if l.stream, err = c.Client(client.Config{ReconnectFor: Patience, Waiting: l.linked}); err != nil {
		return nil, err
	}
	// The link repeats messages itself and reports that they wait, so this client gives up at once.
	l.calls, err = c.Client(client.Config{ReconnectFor: time.Nanosecond, Waiting: func(w client.Wait) {
		if w.Err == nil && !w.Over {
			l.linked(w) // the client stream reports broken connections
		}
	}})
	if err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}
