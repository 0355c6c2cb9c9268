//go:build linux

package pipetest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"

	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// record is one transaction of the small server: what the agent said, up to
// where its output is read, and what to tell it, all or nothing.
type record struct {
	Token uint64 `json:"token,omitempty"`
	Start *start `json:"start,omitempty"`
	// Line ends before offset Taken of the agent's stdout.
	Line  json.RawMessage `json:"line,omitempty"`
	Taken int64           `json:"taken,omitempty"`
	// Send are lines for the agent's stdin.
	Send []json.RawMessage `json:"send,omitempty"`
}

type start struct {
	Call    sandbox.Call     `json:"call"`
	Request wire.ExecRequest `json:"request"`
}

// journal is what the small server keeps on disk, and its state folded from it.
type journal struct {
	f     *os.File
	token uint64
	start *start
	taken int64
	// stdin is every byte ever meant for the agent.
	stdin []byte
	lines []json.RawMessage
	sent  []json.RawMessage
}

func openJournal(path string) (*journal, error) {
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	j := &journal{}
	if j.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := j.f.Truncate(int64(len(whole))); err != nil {
		return nil, err
	}
	if _, err := j.f.Seek(0, 2); err != nil {
		return nil, err
	}
	for line := range bytes.Lines(whole) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		j.fold(r)
	}
	return j, nil
}

func (j *journal) fold(r record) {
	if r.Token > 0 {
		j.token = r.Token
	}
	if r.Start != nil {
		j.start = r.Start
	}
	if r.Line != nil {
		j.lines, j.taken = append(j.lines, r.Line), r.Taken
	}
	for _, s := range r.Send {
		j.sent = append(j.sent, s)
		j.stdin = append(append(j.stdin, s...), '\n')
	}
}

// commit makes a record durable.
func (j *journal) commit(r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(append(raw, '\n')); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.fold(r)
	return nil
}

// outbox is the agent's stdin: it begins where boxd says that it stopped taking,
// and never ends.
type outbox struct {
	mu    sync.Mutex
	cond  *sync.Cond
	data  []byte
	at    int64
	begun bool
	// sent is called, once, when all data was sent: it is asked for more.
	sent func()
}

func newOutbox(data []byte) *outbox {
	o := &outbox{data: bytes.Clone(data)}
	o.cond = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) begin(taken int64) {
	o.mu.Lock()
	o.at, o.begun = taken, true
	o.mu.Unlock()
	o.cond.Broadcast()
}

func (o *outbox) add(lines []json.RawMessage) {
	o.mu.Lock()
	for _, l := range lines {
		o.data = append(append(o.data, l...), '\n')
	}
	o.mu.Unlock()
	o.cond.Broadcast()
}

// half adds the first half of a line, and calls sent when it is on its way.
func (o *outbox) half(line json.RawMessage, sent func()) {
	o.mu.Lock()
	o.data, o.sent = append(o.data, line[:len(line)/2]...), sent
	o.mu.Unlock()
	o.cond.Broadcast()
}

func (o *outbox) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.begun || o.at >= int64(len(o.data)) {
		if o.begun && o.sent != nil {
			o.sent()
			o.sent = nil
		}
		o.cond.Wait()
	}
	n := copy(p, o.data[o.at:])
	o.at += int64(n)
	return n, nil
}
