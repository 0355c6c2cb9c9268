package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// The codes of the notices that the loop records.
const (
	// NoticeRetry: a model call failed and is tried again.
	NoticeRetry = "model.retry"
	// NoticeVoid: the deltas since the last recorded entry of this turn are void.
	NoticeVoid = "deltas.void"
	// NoticeReissued: a model call may have been cut off by a crash and is made
	// again; the deltas since the last recorded entry of this turn are void.
	NoticeReissued = "model.reissued"
)

// Retry is how failed model calls are tried again. Zero fields take the defaults.
type Retry struct {
	// Attempts bounds the tries of one call, the first included (default 5).
	Attempts int
	// Base is the first pause, doubled each time up to Most, with ±25 % jitter
	// (defaults 500 ms and 30 s). What the provider asks for counts when it is
	// more; more than Most, or than a minute, is not waited for.
	Base, Most time.Duration
}

const longestWait = time.Minute

func (p Retry) attempts() int {
	if p.Attempts > 0 {
		return p.Attempts
	}
	return 5
}

// pause is how long to wait after the n-th failure, counting from 0; false when
// the provider asks for more than we wait.
func (p Retry) pause(n int, asked, rnd float64) (time.Duration, bool) {
	base, most := p.Base, p.Most
	if base <= 0 {
		base = 500 * time.Millisecond
	}
	if most <= 0 {
		most = 30 * time.Second
	}
	d := most
	if n < 30 && base<<n < most {
		d = base << n
	}
	d = time.Duration(float64(d) * (0.75 + 0.5*rnd))
	if asked > max(most, longestWait).Seconds() {
		return 0, false
	}
	return max(d, time.Duration(asked*float64(time.Second))), true
}

// reply is a finished answer of the model.
type reply struct {
	blocks []model.Block
	uses   []Use
	stop   string
	usage  holdfast.Usage
	// shown: deltas of it were fanned out.
	shown bool
}

// ask makes a model call, again as long as it fails in a way that may pass.
func (r *run) ask(ctx context.Context) (reply, error) {
	for n := 0; ; n++ {
		a, err := r.stream(ctx)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return reply{}, context.Cause(ctx)
		}
		var f *model.Failure
		if !errors.As(err, &f) {
			return reply{}, failed(err)
		}
		wait, patient := r.Retry.pause(n, f.RetryAfterSeconds, r.Rand())
		if !f.Retryable || n+1 >= r.Retry.attempts() || !patient {
			return reply{}, failed(err)
		}
		if a.shown {
			r.add(holdfast.EventNotice, holdfast.Notice{Code: NoticeVoid, Text: "the answer broke off; what was shown of it is void"})
		}
		r.add(holdfast.EventNotice, holdfast.Notice{
			Code: NoticeRetry,
			Text: fmt.Sprintf("%s; trying again in %s (%d of %d)", f.Error(), wait.Round(time.Millisecond), n+2, r.Retry.attempts()),
		})
		if err := r.flush(); err != nil {
			return reply{}, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return reply{}, context.Cause(ctx)
		}
	}
}

// failed turns a provider's error into the turn's.
func failed(err error) error {
	var f *model.Failure
	if !errors.As(err, &f) {
		var known *holdfast.Error
		if errors.As(err, &known) {
			return err
		}
		return &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: err.Error(), Err: err}
	}
	e := &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: f.Class + ": " + f.Message, Err: err}
	switch f.Class {
	case "authentication":
		e.Kind, e.Hint = holdfast.KindUnauthenticated, "check the provider's key"
	case "rate_limit":
		e.Kind, e.Hint = holdfast.KindBusy, "send the message again later"
	case "invalid":
		e.Kind = holdfast.KindInvalid
	default:
		e.Hint = "send the message again later"
	}
	return e
}

// stream makes one model call and shows it as it comes. On error the reply tells
// only whether something was shown.
func (r *run) stream(ctx context.Context) (a reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = reply{shown: a.shown}, holdfast.Errorf(holdfast.KindInternal, "model", "the provider panicked: %v", p)
		}
	}()
	req := model.Request{Session: r.c.Session, Model: r.c.Model, System: r.c.System, Messages: r.c.Messages, Tools: r.Tools.offered}
	done := false
	for chunk, err := range r.Provider.Stream(ctx, req) {
		if err != nil {
			return reply{shown: a.shown}, err
		}
		switch chunk.Type {
		case model.ChunkText:
			a.shown = true
			r.env.Recorder.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: chunk.Delta})
		case model.ChunkThinking:
			a.shown = true
			r.env.Recorder.Delta(holdfast.DeltaThinking, holdfast.TextDelta{Text: chunk.Delta})
		case model.ChunkBlock:
			a.take(chunk.Block)
		case model.ChunkDone:
			a.stop, a.usage, done = chunk.StopReason, chunk.Usage, true
		}
		if ctx.Err() != nil {
			return reply{shown: a.shown}, ctx.Err()
		}
	}
	if !done {
		return reply{shown: a.shown}, &model.Failure{Class: "cut", Retryable: true, Message: "the stream ended before the answer did"}
	}
	a.order()
	return a, nil
}

// order puts thinking first: so it is read back from the log.
func (a *reply) order() {
	slices.SortStableFunc(a.blocks, func(x, y model.Block) int {
		return rank(x.Type) - rank(y.Type)
	})
}

func rank(t model.BlockType) int {
	if t == model.Thinking {
		return 0
	}
	return 1
}

// take adds a finished block, in a form that can be recorded and sent again.
func (a *reply) take(b model.Block) {
	switch b.Type {
	case model.Text, model.Thinking:
		b.Text = valid(b.Text)
		if b.Text == "" && b.Signature == "" {
			return
		}
	case model.ToolUse:
		u := Use{ID: valid(b.ID), Name: valid(b.Name), State: Requested}
		for u.ID == "" || a.has(u.ID) {
			u.ID = fmt.Sprintf("%s-%d", u.ID, len(a.uses)+1)
		}
		var bad string
		if u.Input, bad = objectOf(b.Input); bad != "" {
			u.Result = answerTo(u.ID, bad, true)
		}
		b = model.Block{Type: model.ToolUse, ID: u.ID, Name: u.Name, Input: u.Input}
		a.uses = append(a.uses, u)
	default:
		return
	}
	a.blocks = append(a.blocks, b)
}

func (a *reply) has(id string) bool {
	for i := range a.uses {
		if a.uses[i].ID == id {
			return true
		}
	}
	return false
}

// text is the answer's text.
func (a *reply) text() string {
	var parts []string
	for i := range a.blocks {
		if a.blocks[i].Type == model.Text {
			parts = append(parts, a.blocks[i].Text)
		}
	}
	return strings.Join(parts, "\n")
}

// entries are the events of the answer: thinking, message.assistant, tool.requested.
func (a *reply) entries(seen int64, name string) []Entry {
	out := make([]Entry, 0, len(a.blocks)+1)
	msg := holdfast.AssistantMessage{
		Parts: make([]holdfast.Part, 0, len(a.blocks)), Seen: seen, StopReason: a.stop, Model: name, Usage: a.usage,
	}
	for i := range a.blocks {
		switch b := &a.blocks[i]; b.Type {
		case model.Thinking:
			out = append(out, Entry{Type: holdfast.EventThinking, Data: holdfast.Thinking{Text: b.Text, Signature: b.Signature}})
		case model.Text:
			msg.Parts = append(msg.Parts, holdfast.Part{Text: b.Text})
		case model.ToolUse:
			msg.Parts = append(msg.Parts, holdfast.Part{ToolUseID: b.ID})
		}
	}
	out = append(out, Entry{Type: holdfast.EventMessageAssistant, Data: msg})
	for i := range a.uses {
		u := &a.uses[i]
		out = append(out, Entry{
			Type: holdfast.EventToolRequested,
			Data: holdfast.ToolRequested{ToolUseID: u.ID, Name: u.Name, Input: u.Input},
		})
	}
	return out
}

// objectOf makes a tool's input a compact JSON object. What was none is kept
// within one, and the second result says what is wrong.
func objectOf(in json.RawMessage) (json.RawMessage, string) {
	trimmed := bytes.TrimSpace(in)
	if len(trimmed) == 0 {
		return json.RawMessage("{}"), ""
	}
	var buf bytes.Buffer
	if !utf8.Valid(trimmed) || json.Compact(&buf, trimmed) != nil {
		text, _ := json.Marshal(valid(string(trimmed)))
		return json.RawMessage(`{"invalid_json":` + string(text) + `}`), "the input is not JSON: " + holdfast.Quote(string(trimmed))
	}
	if trimmed[0] != '{' {
		return json.RawMessage(`{"invalid_input":` + buf.String() + `}`), "the input is not a JSON object: " + holdfast.Quote(string(trimmed))
	}
	return buf.Bytes(), ""
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
