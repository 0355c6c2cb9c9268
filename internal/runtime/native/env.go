package native

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// env gives the agent loop access to the engine in the form that the loop needs.
type env struct {
	runtime.Host
	turn holdfast.TurnID
	// folder is the agent's folder, with the commands that messages may name.
	folder *folder.Folder
}

func (e *env) drafts(entries []loop.Entry) []journal.Draft {
	out := make([]journal.Draft, len(entries))
	for i, x := range entries {
		out[i] = journal.Draft{Type: x.Type, Turn: e.turn, Data: x.Data}
	}
	return out
}

func (e *env) Record(ctx context.Context, entries ...loop.Entry) error {
	_, err := e.Keep(ctx, nil, e.drafts(entries)...)
	return err
}

func (e *env) Life(box *sandbox.Box) (holdfast.BoxID, string, bool) {
	select {
	case <-box.Done():
		return box.ID(), box.Boot(), false
	default:
		return box.ID(), box.Boot(), true
	}
}

func (e *env) steered(ctx context.Context, after int64) ([]loop.Joined, error) {
	events, err := e.Host.Steered(ctx, after)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	out := make([]loop.Joined, len(events))
	for i, ev := range events {
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return nil, err
		}
		out[i] = loop.Joined{Seq: ev.Seq, Text: e.folder.Expand(m.Text())}
	}
	return out, nil
}
