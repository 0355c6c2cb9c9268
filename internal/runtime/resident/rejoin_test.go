package resident

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// censor is an engine that returns joined messages as its hooks changed them.
type censor struct{ engine }

func (c *censor) Steered(_ context.Context, after int64) ([]holdfast.Event, error) {
	var out []holdfast.Event
	for _, ev := range c.events {
		if ev.Type == holdfast.EventMessageUser && ev.Seq > after {
			ev, err := ev.With(holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "(withheld)"}}})
			if err != nil {
				return nil, err
			}
			out = append(out, ev)
		}
	}
	return out, nil
}

// TestJoinedMessagesPassTheHooks: a message that joined the turn before its log is read reaches the agent only as the
// hooks changed it.
func TestJoinedMessagesPassTheHooks(t *testing.T) {
	h := new(censor)
	say := func(text string, steer bool) json.RawMessage {
		raw, err := json.Marshal(holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}, Steer: steer})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	h.events = []holdfast.Event{
		{Seq: 1, Turn: "t", Type: holdfast.EventMessageUser, Data: say("go", false)},
		{Seq: 2, Turn: "t", Type: holdfast.EventTurnStarted, Data: json.RawMessage(`{}`)},
		{Seq: 3, Turn: "t", Type: holdfast.EventMessageUser, Data: say("hunter2", true)},
	}
	r := New(&Config{Runtime: "parrot", Op: "parrot"}, "t", h)
	if err := r.LoadLog(t.Context(), 0, false); err != nil {
		t.Fatal(err)
	}
	if got := r.Account.Messages; len(got) != 2 || got[0].Text != "go" || got[1].Text != "(withheld)" || got[1].Seq != 3 {
		t.Errorf("the agent's messages are %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r = New(&Config{Runtime: "parrot", Op: "parrot"}, "t", h)
	if err := r.LoadLog(ctx, 0, false); err != nil || len(r.Account.Messages) == 0 {
		t.Errorf("a cancelled turn reads its log with %v, %+v", err, r.Account.Messages)
	}
}
