package scripted

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// maxCounted is the greatest number of sessions for which faults are counted at the same time.
const maxCounted = 4096

// Model is the scripted model.Provider. Make one with New; safe for concurrent use.
type Model struct {
	seed maphash.Seed

	mu     sync.Mutex
	faults map[holdfast.SessionID]*counted
}

// counted has, for a session's newest message with a script, how many faults of each step
// have happened.
type counted struct {
	message uint64
	steps   map[int]int
}

// New returns a scripted model.
func New() *Model {
	return &Model{seed: maphash.MakeSeed(), faults: make(map[holdfast.SessionID]*counted)}
}

// Stream implements model.Provider.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		text, index := latest(req.Messages)
		steps, found, err := Find(text)
		if err != nil {
			yield(model.Chunk{}, &model.Failure{Class: "invalid", Message: explain(err)})
			return
		}
		a := answer{ctx: ctx, req: &req, yield: yield}
		if !found {
			said := remember(req.Messages).sentence()
			a.step(&Step{Say: &said})
			return
		}
		m.obey(&a, steps, index, text)
	}
}

// obey sends the answer with the given index in the script, or, if a fault before that answer has to happen now, the fault.
func (m *Model) obey(a *answer, steps []Step, index int, text string) {
	answers := 0
	for i := range steps {
		s := &steps[i]
		if answers == index && s.faulty() && m.fails(a.req, text, i, s.Times) {
			a.fail(s)
			return
		}
		if !s.Answers() {
			continue
		}
		if answers == index {
			a.step(s)
			return
		}
		answers++
	}
	a.step(&Step{})
}

// fails reports whether a fault of a step has to happen, because it has happened less often than the
// parameter times says. If so, fails counts the fault.
func (m *Model) fails(req *model.Request, text string, step, times int) bool {
	var h maphash.Hash
	h.SetSeed(m.seed)
	h.WriteString(text)
	n := remember(req.Messages).messages
	fmt.Fprintf(&h, "\x00%d", n)
	key := h.Sum64()

	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.faults[req.Session]
	if c == nil || c.message != key {
		if c == nil && len(m.faults) >= maxCounted {
			for id := range m.faults {
				delete(m.faults, id)
				break
			}
		}
		c = &counted{message: key, steps: make(map[int]int)}
		m.faults[req.Session] = c
	}
	if c.steps[step] >= times {
		return false
	}
	c.steps[step]++
	return true
}

// answer writes the chunks of one answer of the scripted model.
type answer struct {
	ctx   context.Context
	req   *model.Request
	yield func(model.Chunk, error) bool
	// out counts the bytes of the answer.
	out int
}

// step sends the whole answer of a script step: its thinking, its text and its tool calls.
func (a *answer) step(s *Step) {
	if !a.wait(s.Delay) || !a.think(s.Think) {
		return
	}
	text := ""
	switch {
	case s.Say != nil:
		text = *s.Say
	case s.Tools == nil:
		text = "ok"
	}
	parts := split(text, max(s.Chunks, 1))
	if !a.deltas(parts[:len(parts)/2]) || !a.wait(s.Stall) || !a.deltas(parts[len(parts)/2:]) {
		return
	}
	if text != "" && !a.block(model.Block{Type: model.Text, Text: text}) {
		return
	}
	for i, u := range s.Tools {
		b := model.Block{Type: model.ToolUse, ID: a.toolID(i), Name: a.offered(u.Tool), Input: u.Input}
		if !a.block(b) {
			return
		}
	}
	done := model.Chunk{Type: model.ChunkDone, StopReason: s.StopReason}
	if done.StopReason == "" {
		done.StopReason = "end_turn"
		if len(s.Tools) > 0 {
			done.StopReason = "tool_use"
		}
	}
	done.Usage = holdfast.Usage{InputTokens: Tokens(a.req), OutputTokens: int64(a.out / 4)}
	if s.Usage != nil {
		done.Usage = *s.Usage
	}
	a.yield(done, nil)
}

// fail carries out the failure or stall of a step instead of its answer.
func (a *answer) fail(s *Step) {
	if !a.wait(s.Delay) {
		return
	}
	switch {
	case s.Error != "":
		if s.Late && !a.half(s) {
			return
		}
		a.yield(model.Chunk{}, &model.Failure{
			Class: s.Error, Retryable: errorClasses[s.Error], RetryAfterSeconds: s.RetryAfter,
			Message: "the script asked for this failure",
		})
	case s.Cut:
		if !a.half(s) || !a.wait(s.Stall) {
			return
		}
		a.yield(model.Chunk{}, &model.Failure{Class: "cut", Retryable: true, Message: "the stream ended before the model's answer was complete"})
	default:
		if a.wait(s.Stall) {
			a.yield(model.Chunk{}, &model.Failure{
				Class: "stall", Retryable: true,
				Message: fmt.Sprintf("nothing came for %d ms", s.Stall.Milliseconds()),
			})
		}
	}
}

// half says the first half of a step's text, if it has one.
func (a *answer) half(s *Step) bool {
	if s.Say == nil {
		return true
	}
	parts := split(*s.Say, max(s.Chunks, 2))
	return a.deltas(parts[:(len(parts)+1)/2])
}

func (a *answer) think(text string) bool {
	if text == "" {
		return true
	}
	return a.yield(model.Chunk{Type: model.ChunkThinking, Delta: text}, nil) &&
		a.block(model.Block{Type: model.Thinking, Text: text})
}

func (a *answer) deltas(parts []string) bool {
	for _, p := range parts {
		if !a.yield(model.Chunk{Type: model.ChunkText, Delta: p}, nil) {
			return false
		}
	}
	return true
}

func (a *answer) block(b model.Block) bool {
	a.out += len(b.Text) + len(b.Name) + len(b.Input)
	return a.yield(model.Chunk{Type: model.ChunkBlock, Block: b}, nil)
}

// coarse is how late a timer may come in an idle process: the runtime waits in whole milliseconds.
// Measurements of what a server adds to a model's delay need a scripted model that keeps its delay
// more exactly.
const coarse = 1500 * time.Microsecond

// pause is a timer's sleep; it ends with ctx.
func (a *answer) pause(d time.Duration) {
	if d <= 0 || a.ctx.Err() != nil {
		return
	}
	_ = clock.Pause(a.ctx, d)
}

// wait sleeps for d. It returns false if ctx ended; it has then yielded the error.
func (a *answer) wait(d time.Duration) bool {
	if d > 0 {
		until := time.Now().Add(d)
		if d > 2*coarse {
			a.pause(d - coarse)
			nap(time.Until(until))
		}
		a.pause(time.Until(until))
	}
	if err := a.ctx.Err(); err != nil {
		a.yield(model.Chunk{}, err)
		return false
	}
	return true
}

// toolID returns an id that depends only on the tool call's position in the conversation. So an
// answer that is requested again has the same ids, and no two calls share an id.
func (a *answer) toolID(i int) string {
	return fmt.Sprintf("toolu_%d_%d", len(a.req.Messages), i)
}

// offered returns a tool's name as the request spells it, ignoring case; name itself if the request offers no such
// tool.
func (a *answer) offered(name string) string {
	for i := range a.req.Tools {
		if strings.EqualFold(a.req.Tools[i].Name, name) {
			return a.req.Tools[i].Name
		}
	}
	return name
}

// split cuts a text into n pieces of about the same number of runes, fewer when
// there are fewer runes.
func split(text string, n int) []string {
	if text == "" {
		return nil
	}
	runes := utf8.RuneCountInString(text)
	n = min(n, runes)
	out := make([]string, 0, n)
	seen, start := 0, 0
	for i := range text {
		if seen == (len(out)+1)*runes/n {
			out = append(out, text[start:i])
			start = i
		}
		seen++
	}
	return append(out, text[start:])
}

// Tokens returns the number of tokens that a request counts: a quarter of its bytes.
func Tokens(req *model.Request) int64 { return req.Bytes() / 4 }

func explain(err error) string {
	if hint := holdfast.HintOf(err); hint != "" {
		return fmt.Sprintf("%s (%s)", err.Error(), hint)
	}
	return err.Error()
}
