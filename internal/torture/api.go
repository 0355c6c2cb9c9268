package torture

import (
	"context"
	"io"
	"iter"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// api is the part of the server's API that the load uses.
type api struct{ c *client.Client }

func (a *api) create(ctx context.Context, title string) (holdfast.SessionID, error) {
	s, err := a.c.CreateSession(ctx, holdfast.CreateSession{Title: title}, "")
	return s.ID, err
}

func (a *api) send(ctx context.Context, id holdfast.SessionID, text, key string) (holdfast.Sent, error) {
	return a.c.Send(ctx, id, holdfast.SendMessage{Text: text, Key: key})
}

func (a *api) follow(ctx context.Context, id holdfast.SessionID, after int64) iter.Seq2[holdfast.Event, error] {
	return a.c.Follow(ctx, id, after)
}

func (a *api) events(ctx context.Context, id holdfast.SessionID) ([]holdfast.Event, error) {
	var out []holdfast.Event
	for ev, err := range a.c.AllEvents(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		out = append(out, ev)
	}
	return out, nil
}

func (a *api) containers(ctx context.Context) ([]holdfast.Container, error) {
	return a.c.Containers(ctx)
}

func (a *api) file(ctx context.Context, id holdfast.SessionID, name string, w io.Writer) error {
	r, err := a.c.ReadFile(ctx, id, name)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}
