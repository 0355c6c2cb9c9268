// Package rpcline reads JSON-RPC messages that come as lines, and lets only messages
// pass, so that garbage neither ends a connection of a library nor reaches its log.
//
// The servers on stdin and stdout import it. Invariant: what is handed on are whole
// messages that passed the check, in their order; every other line was answered with
// an error.
package rpcline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 9 << 20

// MaxValues is how many JSON values a message may hold. The libraries that read the
// messages keep each value separately, which for small values takes twenty times their
// text.
const MaxValues = 100_000

// answerTime is how long requests may be answered when the input has ended.
const answerTime = 5 * time.Second

// Config says what to read and whom to answer.
type Config struct {
	In io.Reader
	// Out gets what is written through Write, and the answers to what is no message.
	Out io.Writer
	Log *slog.Logger
	// Check, when set, refuses what the reader of the messages would not take.
	Check func(line []byte) error
	// Long is a method that the end of the input does not wait for.
	Long string
	// Ordered hands on a message only when Entered was called for the one before: for
	// a reader that runs each in a goroutine of its own.
	Ordered bool
}

// Reader is the messages as an io.Reader, for one reader, and the way back: the end
// of the input waits for a moment until what was asked for is answered.
type Reader struct {
	cfg Config
	r   *bufio.Reader

	rest []byte // of the line that is being handed on
	wait bool   // for the handler of that line
	in   chan struct{}
	done chan struct{}
	once sync.Once

	writing sync.Mutex
	mu      sync.Mutex
	open    map[string]bool // requests without an answer
	idle    chan struct{}
	broken  error
}

// New makes a Reader.
func New(cfg Config) *Reader {
	return &Reader{cfg: cfg, r: bufio.NewReaderSize(cfg.In, 64<<10), in: make(chan struct{}, 1), done: make(chan struct{}), open: map[string]bool{}}
}

// Entered says that the message handed on last has its place.
func (l *Reader) Entered() {
	select {
	case l.in <- struct{}{}:
	default:
	}
}

// Close ends the reading for good.
func (l *Reader) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Write writes one line whole, whoever writes, and sees which request it answers.
func (l *Reader) Write(p []byte) (int, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	n, err := l.cfg.Out.Write(p)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(p, &m) == nil && m.Method == "" && len(m.ID) > 0 {
		l.answered(string(m.ID))
	}
	return n, err
}

func (l *Reader) answered(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
	if len(l.open) == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// Failure is why the input ended, nil at its end.
func (l *Reader) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Read implements io.Reader.
func (l *Reader) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.wait {
			select {
			case <-l.in:
				l.wait = false
			case <-l.done:
				return 0, io.EOF
			}
		}
		line, err := l.line()
		if len(line) > 0 {
			l.take(line)
		}
		if err != nil && len(l.rest) == 0 {
			l.last(err)
			return 0, io.EOF
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// last lets the requests that came before the end be answered.
func (l *Reader) last(err error) {
	l.mu.Lock()
	if !errors.Is(err, io.EOF) {
		l.broken = err
	}
	idle := make(chan struct{})
	if len(l.open) > 0 {
		l.idle = idle
	} else {
		close(idle)
	}
	l.mu.Unlock()
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case <-idle:
	case <-l.done:
	case <-t.C:
	}
}

// line reads a line without its end. One that is too long is read to its end and
// answered; it comes back empty.
func (l *Reader) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > MaxLine {
			line, long = nil, true
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			l.refuse(-32600, "the message is over 9 MiB")
		}
		return bytes.TrimSpace(line), err
	}
}

// message is a line as an ordered reader reads it: whether it calls its handler is
// told from the same fields.
type message struct {
	JSONRPC string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id,omitempty"`
	Method  string           `json:"method,omitempty"`
	Params  json.RawMessage  `json:"params,omitempty"`
	Result  json.RawMessage  `json:"result,omitempty"`
	Error   *problem         `json:"error,omitempty"`
}

// problem is an error as JSON-RPC has it.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// values counts the values of valid JSON, plus one for each empty list and object.
func values(line []byte) int {
	n, inText := 1, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// take readies a line to be handed on, or refuses it.
func (l *Reader) take(line []byte) {
	var m message
	switch err := json.Unmarshal(line, &m); {
	case !json.Valid(line):
		l.refuse(-32700, "the line is not JSON")
		return
	case err != nil || line[0] != '{' || m.Method == "" && m.ID == nil:
		l.refuse(-32600, "the line is not a JSON-RPC message")
		return
	case values(line) > MaxValues:
		l.refuse(-32600, "the message holds over 100,000 values")
		return
	case l.cfg.Check != nil:
		if err := l.cfg.Check(line); err != nil {
			l.refuse(-32600, "the line is not a message of this protocol")
			return
		}
	}
	// It handles this one by itself.
	cancelRequest := m.ID == nil && m.Method == "$/cancel_request"
	l.wait = l.cfg.Ordered && m.Method != "" && !cancelRequest
	if m.ID != nil && m.Method != "" && m.Method != l.cfg.Long {
		l.mu.Lock()
		l.open[string(*m.ID)] = true
		l.mu.Unlock()
	}
	l.rest = append(line, '\n')
}

// refuse answers what has no id that could be read.
func (l *Reader) refuse(code int, text string) {
	l.cfg.Log.Warn("a line of the input is no message", "why", text)
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": problem{Code: code, Message: text}})
	if err == nil {
		// Who does not read either is gone: the next read says so.
		_, _ = l.Write(append(b, '\n'))
	}
}
