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

// Patience is how long a chat waits for a server that went away.
const Patience = 24 * time.Hour

// Chat is what a conversation needs. All fields are set.
type Chat struct {
	Stdin io.Reader
	// Person: somebody types. JSON: events are printed by PrintJSON.
	Person, JSON bool
	Printer      *plain.Printer
	PrintJSON    func(holdfast.Event) error
	// Session is the session, unless Create describes the one that the first message makes;
	// Key is that creation's idempotency key, if the user gave one.
	Session holdfast.Session
	Create  *holdfast.CreateSession
	Key     string
	// Client makes a client of the server.
	Client func(client.Config) (*client.Client, error)
	// Remember makes a session the user's last one; About says more on one that is taken up.
	Remember func(holdfast.SessionID)
	About    func(holdfast.Session) []plain.Line
	NewKey   func() (string, error)
	// Copy copies between the local disk and a session, and returns what to say of it. A path
	// with a colon before it is the session's.
	Copy    func(ctx context.Context, id holdfast.SessionID, src, dst string) ([]string, error)
	Signals <-chan os.Signal
	// Screen is for OnScreen.
	Screen Terminal
}

// Outcome is how a conversation ended.
type Outcome struct {
	Code    int
	Session holdfast.SessionID
	// Lost is why the log ended before the user left; nil if it did not.
	Lost error
}

// talk makes the state of the conversation.
func (c *Chat) talk() *Talk {
	t := NewTalk(c.Session, c.Create)
	t.Person, t.JSON, t.About, t.Copy = c.Person, c.JSON, c.About, c.Copy
	t.Teller.Asks = c.Person
	return t
}

// link makes the link to the server; what it hears is posted.
func (c *Chat) link(ctx context.Context, post func(Input)) (*link, error) {
	l := &link{
		ctx: ctx, post: post, newKey: c.NewKey, id: c.Session.ID, firstKey: c.Key,
		person: c.Person, remember: c.Remember,
	}
	if c.Create != nil {
		l.id = ""
	}
	var err error
	if l.stream, err = c.Client(client.Config{ReconnectFor: Patience, Waiting: l.linked}); err != nil {
		return nil, err
	}
	// Messages are repeated by the link, which says that they wait.
	l.calls, err = c.Client(client.Config{ReconnectFor: time.Nanosecond, Waiting: func(w client.Wait) {
		if w.Err == nil && !w.Over {
			l.linked(w) // the stream reports the rest
		}
	}})
	if err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}
