package native

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// env shows the engine to the loop.
type env struct {
	host runtime.Host
	turn holdfast.TurnID
	// folder has the commands that messages may name.
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
	_, err := e.host.Keep(ctx, nil, e.drafts(entries)...)
	return err
}

func (e *env) Delta(typ holdfast.EventType, data any) { e.host.Delta(typ, data) }

func (e *env) Box(ctx context.Context) (*sandbox.Box, error) { return e.host.Box(ctx) }

func (e *env) Life(box *sandbox.Box) (holdfast.BoxID, string, bool) {
	select {
	case <-box.Done():
		return box.ID(), box.Boot(), false
	default:
		return box.ID(), box.Boot(), true
	}
}

func (e *env) Outcome(ctx context.Context, started holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	return e.host.Outcome(ctx, started)
}

func (e *env) Release(box *sandbox.Box, calls ...holdfast.CallID) { e.host.Release(box, calls...) }

func (e *env) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	return e.host.Decide(ctx, req)
}

func (e *env) Scope(ctx context.Context, req policy.Request) (policy.Scope, error) {
	return e.host.Scope(ctx, req)
}

func (e *env) steered(ctx context.Context, after int64) ([]loop.Joined, error) {
	events, err := e.host.Steered(ctx, after)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	out := make([]loop.Joined, len(events))
	for i, ev := range events {
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return nil, err
		}
		out[i] = loop.Joined{Seq: ev.Seq, Text: e.folder.Expand(m.Text)}
	}
	return out, nil
}
