// Package rpcline reads JSON-RPC messages, one per line, and passes on only valid ones, so that
// garbage neither ends the connection of a JSON-RPC library nor reaches the library's log.
//
// The servers on stdin and stdout import it. Invariant: it passes on only complete messages that
// passed the check, in their order; it answers every other line with an error.
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

// MaxValues is how many JSON values a message may contain. The libraries that read the messages
// store each value separately, which for small values takes twenty times the memory of their
// text.
const MaxValues = 100_000

// answerTime is how long, after the end of the input, open requests may still be answered.
const answerTime = 5 * time.Second

// Config describes what a Reader reads and where it writes.
type Config struct {
	In io.Reader
	// Out receives what is written through Write, and the errors for lines that are not messages.
	Out io.Writer
	Log *slog.Logger
	// Check, if set, returns an error for lines that the reader of the messages would reject.
	Check func(line []byte) error
	// Long is a method whose open requests are not waited for at the end of the input.
	Long string
	// Ordered makes the Reader wait, after each message, until Entered is called, before it
	// passes on the next: for a library that handles each message in a goroutine of its own.
	Ordered bool
}

// Reader is the valid messages as an io.Reader, for one goroutine that reads, and the writer of
// the answers. At the end of the input it waits a moment until all open requests are answered.
type Reader struct {
	cfg Config
	r   *bufio.Reader

	rest []byte // the part of the current line that is not read yet
	wait bool   // the handler of the current line must call Entered first
	in   chan struct{}
	done chan struct{}
	once sync.Once

	writing sync.Mutex
	mu      sync.Mutex
	open    map[string]bool // ids of the requests without an answer
	idle    chan struct{}
	broken  error
}

// New makes a Reader.
func New(cfg Config) *Reader {
	return &Reader{cfg: cfg, r: bufio.NewReaderSize(cfg.In, 64<<10), in: make(chan struct{}, 1), done: make(chan struct{}), open: map[string]bool{}}
}

// Entered reports that the handler of the last message has started, so that the next message may follow.
func (l *Reader) Entered() {
	select {
	case l.in <- struct{}{}:
	default:
	}
}

// Close ends the reading: Read returns io.EOF from then on.
func (l *Reader) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Write writes one complete line, also with concurrent writers, and records which request it answers.
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

// Failure returns the error that ended the input, or nil if the input ended normally.
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

// last waits until the requests from before the end of the input are answered, but not longer than answerTime.
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

// line reads a line without its line end. A line that is too long is read to its end and answered
// with an error; then line returns an empty line.
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
			l.refuse(-32600, "the message is longer than 9 MiB")
		}
		return bytes.TrimSpace(line), err
	}
}

// message is a line with the fields that a JSON-RPC library reads: with them the Reader
// determines whether the library will call a handler.
type message struct {
	JSONRPC string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id,omitempty"`
	Method  string           `json:"method,omitempty"`
	Params  json.RawMessage  `json:"params,omitempty"`
	Result  json.RawMessage  `json:"result,omitempty"`
	Error   *problem         `json:"error,omitempty"`
}

// problem is an error object of JSON-RPC.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// values returns the number of values in valid JSON, plus one for each empty list and object.
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

// take prepares a line to be read by Read, or answers it with an error.
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
		l.refuse(-32600, "the message contains more than 100,000 JSON values")
		return
	case l.cfg.Check != nil:
		if err := l.cfg.Check(line); err != nil {
			l.refuse(-32600, "the line is not a message of this protocol")
			return
		}
	}
	// The library handles $/cancel_request itself, without a handler that calls Entered.
	cancelRequest := m.ID == nil && m.Method == "$/cancel_request"
	l.wait = l.cfg.Ordered && m.Method != "" && !cancelRequest
	if m.ID != nil && m.Method != "" && m.Method != l.cfg.Long {
		l.mu.Lock()
		l.open[string(*m.ID)] = true
		l.mu.Unlock()
	}
	l.rest = append(line, '\n')
}

// refuse answers a line with an error without an id, because the line has none that could be read.
func (l *Reader) refuse(code int, text string) {
	l.cfg.Log.Warn("rejected a line of the input that is not a valid message", "why", text)
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": problem{Code: code, Message: text}})
	if err == nil {
		// If the other side does not read, it is gone, which the next Read notices.
		_, _ = l.Write(append(b, '\n'))
	}
}
